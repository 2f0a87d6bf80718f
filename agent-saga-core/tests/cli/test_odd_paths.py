"""A log at a path that is no UTF-8: every command works on it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent(
    """
    import os, sys
    from agent_saga import AgentKit, compensator

    kit = AgentKit("odd", wal=os.fsdecode(b"lo\\xffg"))

    @compensator("odd.undo", idempotent=True)
    def undo(n, idempotency_key):
        with open("world.txt", "a") as file:
            file.write(f"undone {n}\\n")

    @kit.tool("COMPENSABLE", compensate=undo.using(n="$"))
    def act(n: int) -> int:
        return n

    if __name__ == "__main__":
        with kit.transaction(saga_id="s"):
            act(1)
            if "die" in sys.argv:
                os._exit(3)
    """
)


def run(folder: Path, *words: str | bytes) -> subprocess.CompletedProcess[bytes]:
    command: list[str | bytes] = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such name")
@pytest.mark.parametrize(
    ("crashes", "words"),
    [
        (True, ("agent_saga.cli", "recover")),
        (True, ("agent_saga.cli.recoveryd", "--once")),
        (False, ("agent_saga.cli", "undo", "s", "--by", "ann", "--reason", "x")),
    ],
)
def test_what_acts_on_such_a_log_acts(
    tmp_path: Path, crashes: bool, words: tuple[str, ...]
) -> None:
    (tmp_path / "odd.py").write_text(PROGRAM)
    run(tmp_path, "odd.py", *(["die"] if crashes else []))
    where = ("--wal-path", b"lo\xffg", "--import", "odd")
    done = run(tmp_path, "-m", *words, *where)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert (tmp_path / "world.txt").read_text() == "undone 1\n"
