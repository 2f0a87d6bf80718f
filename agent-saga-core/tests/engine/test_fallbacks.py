"""An effect of another way is found under its own key, and is never made a second time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agent_saga import (
    AgentKit,
    Applied,
    Compensation,
    NotApplied,
    OutcomeUnknown,
    SagaAborted,
    Settings,
)

FAST = Settings(settle=0.5, settle_after=0.1, inverse_delay=0.0)


class Boom(Exception):
    pass


def shop(log, ledger, *, dies=False, visa_is_down=True, idempotent=False):
    """Pay with one card, else with another; the ledger is a file, by key."""
    kit = AgentKit("pay", wal=str(log), settings=FAST)

    def master(n, *, idempotency_key):
        ledger.write_text(ledger.read_text() + f"master {idempotency_key}\n")
        if dies:
            os._exit(9)
        raise ConnectionError("the answer is lost")

    @kit.tool("COMPENSABLE", fallback_action=master, idempotent=idempotent)
    def pay(n, *, idempotency_key):
        if visa_is_down:
            raise NotApplied("visa is down")
        ledger.write_text(ledger.read_text() + f"visa {idempotency_key}\n")
        return n

    @pay.undo
    def refund(result, *, idempotency_key):
        ledger.write_text(ledger.read_text() + "refund x\n")

    @pay.probe
    def find(*, idempotency_key):
        there = idempotency_key in ledger.read_text()
        return Applied("it") if there else NotApplied(final=True)

    return kit, pay


def words(ledger):
    return [line.split()[0] for line in ledger.read_text().splitlines()]


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger"
    path.write_text("")
    return path


def test_a_prober_is_asked_with_the_key_of_the_way_that_was_taken(tmp_path, ledger):
    kit, pay = shop(tmp_path / "log", ledger)
    with pytest.raises(SagaAborted) as ended, kit.transaction():
        pay(1)
    assert words(ledger) == ["master", "refund"]
    assert ended.value.report.clean


def test_a_call_that_went_another_way_is_not_repeated_the_first_way(tmp_path, ledger):
    kit = AgentKit("pay", wal=str(tmp_path / "log"), settings=FAST)
    world = []

    def master(n, *, idempotency_key):
        world.append("master")
        raise ConnectionError("the answer is lost")

    @kit.tool("COMPENSABLE", fallback_action=master, idempotent=True)
    def pay(n, *, idempotency_key):
        if world:
            world.append("visa")
            return n
        raise NotApplied("visa is down")

    pay.undo(lambda result: world.append("refund"))
    with pytest.raises(SagaAborted) as ended, kit.transaction():
        with pytest.raises(ConnectionError):
            pay(1)
        with pytest.raises(OutcomeUnknown):
            pay(1)
        raise Boom
    assert world == ["master"]
    assert not ended.value.report.clean


@pytest.mark.guarantee("FALLBACK-2")
def test_an_inverse_made_for_the_first_way_is_not_taken_for_one_of_the_other(tmp_path):
    kit = AgentKit("pay", wal=str(tmp_path / "log"), settings=FAST)
    world = {}

    def master(n, *, idempotency_key):
        world[idempotency_key] = "master"
        raise ConnectionError("the answer is lost")

    def pay(n, *, idempotency_key):
        raise NotApplied("visa is down")

    def cancel(key):
        world.pop(key, None)

    def made_before(idempotency_key):
        return Compensation(fn=cancel, kwargs={"key": idempotency_key})

    tool = kit.safe_tool(
        pay,
        "COMPENSABLE",
        lambda result: Compensation(fn=cancel, kwargs={"key": result}),
        fallback_action=master,
        provisional=lambda idempotency_key: Compensation(
            fn=cancel, kwargs={"key": idempotency_key}
        ),
    )
    with pytest.raises(SagaAborted) as ended, kit.transaction():
        tool(1)
    assert list(world.values()) == ["master"]
    assert not ended.value.report.clean


DIES_ON_ANOTHER_WAY = """
import os, pathlib
from agent_saga import AgentKit, Compensation, NotApplied, compensator

kit = AgentKit("pay", wal="log")
WORLD = pathlib.Path("world.txt")


def note(line):
    with WORLD.open("a") as file:
        print(line, file=file)


@compensator("cancel_key", null_safe=True, idempotent=True)
def cancel_key(key):
    note(f"cancelled {key}")


def master(n, *, idempotency_key):
    note(f"master {idempotency_key}")
    os._exit(9)


@kit.tool(
    "COMPENSABLE",
    compensate=cancel_key.using(key="$"),
    fallback_action=master,
    provisional=lambda idempotency_key: Compensation(
        handler="cancel_key", kwargs={"key": idempotency_key}
    ),
)
def pay(n, *, idempotency_key):
    note(f"visa {idempotency_key}")
    raise NotApplied("visa is down")


if __name__ == "__main__":
    with kit.transaction():
        pay(1)
"""


@pytest.mark.guarantee("FALLBACK-2")
@pytest.mark.crash
def test_an_inverse_made_for_the_first_way_is_dropped_over_a_crash_on_the_other(tmp_path):
    """It would undo nothing under its key, and be called an undoing of what stands."""
    (tmp_path / "pay.py").write_text(DIES_ON_ANOTHER_WAY)
    environ = {**os.environ, "AGENT_SAGA_SETTLE_AFTER": "0"}

    def python(*words):
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, check=False, capture_output=True
        ).returncode

    assert python("pay.py") == 9
    recover = ("-m", "agent_saga.cli", "recover", "--wal-path", "log", "--import", "pay")
    assert python(*recover) == 1
    did = [line.split()[0] for line in (tmp_path / "world.txt").read_text().splitlines()]
    assert did == ["visa", "master"]


@pytest.mark.guarantee("FALLBACK-1")
@pytest.mark.crash
@pytest.mark.parametrize("resumed", [False, True])
def test_a_process_that_dies_on_another_way_leaves_word_of_it(tmp_path, ledger, resumed):
    log = tmp_path / "log"
    program = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); from test_fallbacks import shop\n"
        "kit, pay = shop(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), dies=True)\n"
        "with kit.transaction(saga_id='order', resume=True): pay(1)\n"
    )
    here = os.path.dirname(__file__)  # noqa: PTH120 - an argument of a program
    done = subprocess.run([sys.executable, "-c", program, here, str(log), str(ledger)], check=False)
    assert done.returncode == 9
    kit, pay = shop(log, ledger, visa_is_down=False, idempotent=True)
    with pytest.raises(SagaAborted) as ended, kit.transaction(saga_id="order", resume=True):
        if resumed:
            assert pay(1) == "it"
        raise Boom
    undone = words(ledger) == ["master", "refund"]
    assert ended.value.report.clean is undone
    assert undone or not resumed
