"""A resumed run that goes otherwise than the recorded one: nothing is silent, nothing is double."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from resume.conftest import Shop

from agent_saga import Applied, NotApplied, SagaAborted, SagaSuspended
from agent_saga.errors import ReplayConflict

# --- what was not applied, and made again ---------------------------------------------------------


def declined_and_retried(shop: Shop) -> None:
    """The first charge of 1 had no effect, and the program made it again."""
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.fail = NotApplied("no money")
        with pytest.raises(NotApplied):
            shop.charge(1)
        shop.fail = None
        shop.charge(1)
        saga.suspend("waits")
    shop.world.remove(("charge", 1))  # the one that the provider declined


def charge_or_again(shop: Shop) -> dict[str, int]:
    """Charge 1; make it again if it had no effect."""
    try:
        return shop.charge(1)
    except NotApplied:
        return shop.charge(1)


@pytest.mark.guarantee("RESUME-11")
def test_a_retry_that_took_effect_is_the_call_that_had_none(shop: Shop) -> None:
    declined_and_retried(shop)
    with shop.open():
        assert charge_or_again(shop) == {"n": 1}
    assert shop.world == [("charge", 1)]
    assert shop.state() == ("COMMITTED", True)


def test_behind_a_retry_the_run_goes_on_with_new_calls(shop: Shop) -> None:
    declined_and_retried(shop)
    with shop.open():
        charge_or_again(shop)
        shop.charge(2)
    assert shop.world == [("charge", 1), ("charge", 2)]


def test_a_retry_whose_ending_is_unknown_is_settled_and_not_made_again(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        for failure in (NotApplied("no money"), ConnectionError("lost")):
            shop.fail = failure
            with pytest.raises(type(failure)):
                shop.charge(1)
        shop.fail = None
        saga.suspend("waits")
    shop.world.remove(("charge", 1))

    @shop.charge.probe
    def find(args: dict[str, int]) -> Applied:
        return Applied({"n": args["n"]})

    with shop.open():
        assert charge_or_again(shop) == {"n": 1}
    assert shop.world == [("charge", 1)]


# --- what the resumed run leaves out --------------------------------------------------------------


@pytest.mark.guarantee("RESUME-12")
def test_what_a_resumed_run_leaves_out_is_not_committed_with_it(shop: Shop) -> None:
    shop.suspend(1, 2)
    with pytest.raises(SagaAborted) as aborted, shop.open():
        shop.charge(1)
    assert isinstance(aborted.value.__cause__, ReplayConflict)
    assert shop.world == [("charge", 1), ("charge", 2), ("refund", 2), ("refund", 1)]
    assert shop.state() == ("ROLLED_BACK", True)


@pytest.mark.guarantee("RESUME-12")
def test_a_call_that_takes_effect_this_time_does_not_leave_its_substitute_behind(
    shop: Shop,
) -> None:
    """It had no effect, and another tool was called in its place; now it has one."""

    @shop.kit.tool("COMPENSABLE")
    def pay_by_card(n: int) -> int:
        shop.world.append(("card", n))
        return n

    @pay_by_card.undo
    def refund_card(result: int) -> None:
        shop.world.append(("card refunded", result))

    def pay() -> None:
        try:
            shop.charge(1)
        except NotApplied:
            pay_by_card(1)

    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.fail = NotApplied("no money")
        pay()
        shop.fail = None
        saga.suspend("waits")
    shop.world.clear()
    with pytest.raises(SagaAborted) as aborted, shop.open():
        pay()
    assert isinstance(aborted.value.__cause__, ReplayConflict)
    assert shop.world == [("charge", 1), ("refund", 1), ("card refunded", 1)]


def test_a_step_with_a_key_may_be_left_out(shop: Shop) -> None:
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge.keyed("deposit")(1)
        saga.suspend("waits")
    with shop.open():
        shop.charge(2)
    assert shop.world == [("charge", 1), ("charge", 2)]
    assert shop.state() == ("COMMITTED", True)


def test_what_was_kept_of_another_way_may_be_left_out(shop: Shop) -> None:
    shop.suspend(1, 2)
    with shop.open(fork_at="begin", abandoned="keep"):
        shop.charge(3)
    assert shop.state() == ("COMMITTED", True)


def test_a_run_that_suspends_again_may_come_to_the_rest_later(shop: Shop) -> None:
    shop.suspend(1, 2)
    shop.suspend(1)
    with shop.open():
        shop.charge(1)
        shop.charge(2)
    assert shop.world == [("charge", 1), ("charge", 2)]
    assert shop.state() == ("COMMITTED", True)


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path
    from agent_saga import AgentKit, Applied, NotApplied

    kit = AgentKit("k", wal="log")

    @kit.tool("COMPENSABLE", settle_after=0)
    def charge(n: int) -> int:
        if sys.argv[1] != "before":
            with Path("world.txt").open("a") as file:
                print("charged", file=file)
        os.kill(os.getpid(), signal.SIGKILL)

    @charge.undo
    def refund(result):
        with Path("world.txt").open("a") as file:
            print("refunded", file=file)

    @charge.probe
    def find(args):
        return Applied(args["n"]) if Path("world.txt").exists() else NotApplied()

    with kit.transaction(saga_id="order-1", resume=True):
        if sys.argv[1] != "again":
            charge(1)
    """
)


@pytest.mark.parametrize(
    ("dies", "code", "world"), [("before", 0, []), ("inside", 1, ["charged", "refunded"])]
)
def test_a_call_that_died_and_is_not_made_again_is_asked_about(
    tmp_path: Path, dies: str, code: int, world: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)

    def python(*words: str) -> int:
        command = [sys.executable, *words]
        done: Any = subprocess.run(
            command, cwd=tmp_path, env=os.environ, check=False, capture_output=True
        )
        return int(done.returncode)

    assert python("shop.py", dies) == -signal.SIGKILL
    assert python("shop.py", "again") == code
    effects = tmp_path / "world.txt"
    assert (effects.read_text().split() if effects.exists() else []) == world
    assert python("-m", "agent_saga.cli", "list", "--wal-path", "log") == 0
