"""A new version of the program declares a tool or an inverse to be idempotent.

What the version before it has called, it called without that promise: perhaps without the key. So
a call or an inverse that was in flight when it died is not repeated by the new one.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent_saga.cli.main import main

PROGRAM = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from agent_saga import AgentKit, RecoveryDaemon, Settings, compensator

    version, job = int(sys.argv[1]), sys.argv[2]
    settings = Settings(settle_after=0.0, inverse_delay=0.0)
    kit = AgentKit("shop", wal="log", settings=settings)

    def took_effect(what, key):
        with Path("world.txt").open("a") as world:
            world.write(f"{what} {key}\\n")
        if version == 1:
            os._exit(3)

    def plain_refund(n):
        took_effect("refund", "without a key")

    def refund_by_key(n, *, idempotency_key):
        took_effect("refund", "with a key")

    refund = compensator("shop.refund", idempotent=version > 1)(
        plain_refund if version == 1 else refund_by_key
    )

    def charge(n: int):
        if job == "charge":
            took_effect("charge", "without a key")
        return n

    charge = kit.safe_tool(
        charge, semantics="COMPENSABLE", idempotent=version > 1, compensate=refund.using(n="$")
    )

    def run(resume):
        with kit.transaction(saga_id="s", resume=resume):
            charge(1)
            if job == "refund":
                raise RuntimeError("it fails")

    if job == "charge" or version == 1:
        run(resume=version > 1)
    else:
        recovery = RecoveryDaemon("log", settings=settings)
        result = recovery.recover_all()
        print([one.outcome for one in result.sagas])
        try:
            print(recovery.retry(result.sagas[0].saga, by="ann").outcome)
        finally:
            recovery.close()
    """
)


def run(folder: Path, version: int, job: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "shop.py", str(version), job]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


@pytest.mark.guarantee("ONCE-2")
def test_an_inverse_in_flight_is_not_repeated_by_one_that_is_idempotent_since(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    assert run(tmp_path, 1, "refund").returncode == 3
    again = run(tmp_path, 2, "refund")
    assert (tmp_path / "world.txt").read_text() == "refund without a key\n", again.stderr
    assert again.stdout == "['needs a human']\nneeds a human\n"


@pytest.mark.guarantee("ONCE-2")
def test_a_call_in_flight_is_not_repeated_by_one_that_is_idempotent_since(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    assert run(tmp_path, 1, "charge").returncode == 3
    again = run(tmp_path, 2, "charge")
    assert (tmp_path / "world.txt").read_text() == "charge without a key\n"
    assert "OutcomeUnknown" in again.stderr
    assert main(["list", "--wal-path", str(tmp_path / "log")]) == 1
    capsys.readouterr()
