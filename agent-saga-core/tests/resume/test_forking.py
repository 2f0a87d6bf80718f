"""A resumed run that goes another way: what was left is undone or kept, and never taken over."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resume.conftest import Shop

from agent_saga import ConfigurationError, ReplayConflict, SagaAborted
from agent_saga.cli.main import main
from agent_saga.domain.records import Ev
from agent_saga.errors import ForkRefused, RecoveryError, SagaSuspended
from agent_saga.plugins.registry import process_handlers
from agent_saga.recovery import claim as claiming

UNDO, KEEP = "undo", "keep"


def steps(shop: Shop) -> list[str]:
    return list(shop.view().steps)


def charged(*numbers: int) -> list[Any]:
    return [("charge", n) for n in numbers]


@pytest.mark.guarantee("FORK-2")
def test_what_came_after_the_point_is_undone_first(shop: Shop) -> None:
    shop.suspend(1, 2, 3)
    with shop.open(fork_at=steps(shop)[0], abandoned=UNDO):
        assert shop.world[3:] == [("refund", 3), ("refund", 2)], "before anything else"
        assert shop.charge(1) == {"n": 1}
        assert shop.charge(4) == {"n": 4}
    assert shop.world[5:] == charged(4)
    assert shop.state() == ("COMMITTED", True)


@pytest.mark.guarantee("FORK-2")
def test_an_equal_call_on_the_new_way_is_a_new_step(shop: Shop) -> None:
    shop.suspend(1, 2)
    with shop.open(fork_at=steps(shop)[0], abandoned=UNDO):
        shop.charge(1)
        shop.charge(2)
    assert shop.world == [*charged(1, 2), ("refund", 2), ("charge", 2)]
    assert len(steps(shop)) == 3


def test_before_the_first_step(shop: Shop) -> None:
    shop.suspend(1, 2)
    with shop.open(fork_at="begin", abandoned=UNDO):
        shop.charge(5)
    assert shop.world == [*charged(1, 2), ("refund", 2), ("refund", 1), ("charge", 5)]
    assert shop.state() == ("COMMITTED", True)


@pytest.mark.guarantee("FORK-2")
def test_what_is_kept_stands_is_listed_and_is_nobodys_result(shop: Shop) -> None:
    shop.suspend(1, 2)
    with shop.open(fork_at=steps(shop)[0], abandoned=KEEP) as saga:
        assert [line.tool for line in saga.kept] == ["charge"]
        shop.charge(1)
        shop.charge(2)
    assert shop.world == charged(1, 2, 2)
    assert saga.report is not None
    assert saga.report.clean
    assert "kept of a way that was left: charge" in saga.report.summary()


def test_what_is_kept_is_undone_when_the_run_fails(shop: Shop) -> None:
    shop.suspend(1, 2)
    with (
        pytest.raises(SagaAborted) as caught,
        shop.open(fork_at=steps(shop)[0], abandoned=KEEP),
    ):
        shop.charge(1)
        shop.charge(3)
        raise RuntimeError
    assert caught.value.report.clean
    assert shop.world == [*charged(1, 2, 3), ("refund", 3), ("refund", 2), ("refund", 1)]


def test_a_conflict_can_be_suspended_and_gone_round(shop: Shop) -> None:
    shop.suspend(1, 2)
    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge(1)
        with pytest.raises(ReplayConflict) as conflict:
            shop.charge(9)
        assert "fork_at" in conflict.value.fix
        saga.suspend("the run has changed")
    assert shop.world == charged(1, 2)
    with shop.open(fork_at=steps(shop)[0], abandoned=UNDO):
        shop.charge(1)
        shop.charge(9)
    assert shop.world == [*charged(1, 2), ("refund", 2), ("charge", 9)]


@pytest.mark.guarantee("FORK-2")
def test_a_fork_is_made_once(shop: Shop) -> None:
    shop.suspend(1, 2)
    first = steps(shop)[0]
    fork = {"fork_at": first, "abandoned": UNDO}
    with pytest.raises(SagaSuspended), shop.open(**fork) as saga:
        shop.charge(1)
        shop.charge(3)
        saga.suspend("waits")
    with shop.open(**fork):
        shop.charge(1)
        assert shop.charge(3) == {"n": 3}
        shop.charge(4)
    assert shop.world == [*charged(1, 2), ("refund", 2), *charged(3, 4)]


def test_a_way_can_be_left_again(shop: Shop) -> None:
    shop.suspend(1, 2)
    with (
        pytest.raises(SagaSuspended),
        shop.open(fork_at=steps(shop)[0], abandoned=KEEP) as saga,
    ):
        shop.charge(1)
        shop.charge(3)
        shop.charge(4)
        saga.suspend("waits")
    with shop.open(fork_at=steps(shop)[2], abandoned=UNDO):
        shop.charge(1)
        shop.charge(3)
        shop.charge(5)
    assert shop.world == [*charged(1, 2, 3, 4), ("refund", 4), ("charge", 5)]
    with pytest.raises(ForkRefused, match="has ended"), shop.open(fork_at="begin", abandoned=UNDO):
        pass


def test_a_key_is_free_again_when_its_step_was_undone(shop: Shop) -> None:
    keys: list[str] = []

    @shop.kit.tool("COMPENSABLE")
    def pay(n: int, idempotency_key: str) -> int:
        keys.append(idempotency_key)
        return n

    @pay.undo
    def unpay(result: int) -> None:
        shop.world.append(("unpay", result))

    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge(1)
        pay.keyed("deposit")(2)
        saga.suspend("waits")
    with pytest.raises(SagaSuspended), shop.open(fork_at="charge", abandoned=UNDO) as saga:
        shop.charge(1)
        assert pay.keyed("deposit")(3) == 3
        saga.suspend("waits")
    with shop.open():
        shop.charge(1)
        assert pay.keyed("deposit")(3) == 3
        with pytest.raises(ReplayConflict):
            pay.keyed("deposit")(2)
    assert shop.world == [("charge", 1), ("unpay", 2)]
    assert len(keys) == len(set(keys)) == 2, "another effect, another key"
    assert shop.state() == ("COMMITTED", True)


@pytest.mark.parametrize("abandoned", [UNDO, "keep"])
def test_a_key_whose_step_stands_names_that_effect_on_every_way(shop: Shop, abandoned: str) -> None:
    """Also after going back to the beginning: never twice, and never another effect's result."""

    @shop.kit.tool("REVERSIBLE")
    def read(n: int) -> int:
        shop.world.append(("read", n))
        return n

    with pytest.raises(SagaSuspended), shop.open() as saga:
        assert read.keyed("rate")(1) == 1
        saga.suspend("waits")
    with pytest.raises(SagaSuspended), shop.open(fork_at="begin", abandoned=abandoned) as saga:
        assert read.keyed("rate")(1) == 1
        with pytest.raises(ReplayConflict):
            read.keyed("rate")(2)
        saga.suspend("waits")
    assert shop.world == [("read", 1)]


# --- refused --------------------------------------------------------------------------------------


def test_what_cannot_be_undone_refuses_the_fork_before_anything(shop: Shop) -> None:
    @shop.kit.tool("COMPENSABLE", name="print")
    def once() -> None: ...

    @once.undo
    def unprint() -> None: ...

    with pytest.raises(SagaSuspended), shop.open() as saga:
        shop.charge(1)
        shop.charge(2)
        once()
        saga.suspend("waits")
    before = shop.records()
    with process_handlers().isolated() as handlers:
        handlers.compensators._things.pop(once.tool.inverse.handler)
        with pytest.raises(ForkRefused, match="print"), shop.open(fork_at="begin", abandoned=UNDO):
            pass
    assert shop.records() == before
    assert shop.world == charged(1, 2)
    assert shop.state() == ("SUSPENDED", False)


@pytest.mark.parametrize("at", ["nothing", "charge"])
def test_a_step_that_is_not_there_or_not_one_is_refused(shop: Shop, at: str) -> None:
    shop.suspend(1, 2)
    with (
        pytest.raises(ForkRefused, match=r"is no step|one of 2"),
        shop.open(fork_at=at, abandoned=UNDO),
    ):
        pass
    assert shop.world == charged(1, 2)
    assert shop.state() == ("SUSPENDED", False)


def test_there_must_be_a_recorded_run(shop: Shop) -> None:
    with pytest.raises(ForkRefused, match="no saga"), shop.open(fork_at="begin", abandoned=UNDO):
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"fork_at": "begin"},
        {"abandoned": UNDO},
        {"fork_at": "begin", "abandoned": "forget"},
        {"fork_at": "", "abandoned": UNDO},
        {"fork_at": 1, "abandoned": UNDO},
        {"fork_at": "begin", "abandoned": UNDO, "resume": False},
    ],
)
def test_what_becomes_of_the_steps_must_be_said(shop: Shop, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        shop.open(**options)


@pytest.mark.parametrize("fork", [None, 1, {}, {"at": 1, "abandoned": [], "what": UNDO}])
def test_a_recorded_fork_that_cannot_be_read_is_a_fault(shop: Shop, fork: Any) -> None:
    shop.suspend(1)
    found = shop.view()
    wal = shop.kit.runtime.engine().wal
    wal.append(Ev.SAGA_RESUMED, saga=found.id, epoch=1, payload={"fork": fork})
    wal.drain()
    assert shop.view().faults


# --- interrupted ----------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.guarantee("FORK-2")
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whoever_resumes_a_cut_fork_finishes_it(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with process_handlers().isolated(), pytest.MonkeyPatch.context() as patch:
        shop = Shop(tmp_path_factory.mktemp("fork"))
        count = data.draw(st.integers(1, 4), "steps")
        shop.suspend(*range(1, count + 1))
        at = data.draw(st.integers(0, count - 1), "point")
        point = "begin" if at == 0 else steps(shop)[at - 1]
        fork = {"fork_at": point, "abandoned": UNDO}
        cut = data.draw(st.integers(0, count - at - 1), "cut")
        _cut(shop, fork, cut, patch)
        again = data.draw(st.sampled_from([fork, {}]), "how it is resumed")
        with shop.open(**again):
            for n in range(1, at + 1):
                assert shop.charge(n) == {"n": n}
            shop.charge(9)
        refunds = [("refund", n) for n in range(count, at, -1)]
        assert shop.world == [*charged(*range(1, count + 1)), *refunds, ("charge", 9)]
        assert shop.state() == ("COMMITTED", True)


def _cut(shop: Shop, fork: dict[str, Any], after: int, patch: pytest.MonkeyPatch) -> None:
    """Fork in a process that dies before the n-th inverse is announced."""
    from agent_saga.engine import inverse

    real, left = inverse._announced, [after]

    def dies(*given: Any, **how: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(*given, **how)

    with patch.context() as dying:
        dying.setattr(claiming, "_let_go", lambda *given: None)
        dying.setattr(inverse, "_announced", dies)
        with pytest.raises(Killed), shop.open(**fork):
            pass
    shop.kit.runtime.engine().wal.close()


def test_a_way_that_cannot_be_undone_is_left_to_recovery(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.suspend(1, 2)
    broken = shop.charge.tool.inverse.handler
    handler = process_handlers().compensators.get(broken)
    monkeypatch.setattr(handler, "fn", _raises, raising=True)
    with (
        pytest.raises(RecoveryError, match="could not be undone"),
        shop.open(fork_at="begin", abandoned=UNDO),
    ):
        shop.charge(5)
    assert shop.world == charged(1, 2)
    state, clean = shop.state()
    assert state == "RELEASED"
    assert not clean


def _raises(result: Any) -> None:
    raise OSError("no")


# --- real processes -------------------------------------------------------------------------------

PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path
    from agent_saga import AgentKit, Settings, compensator

    kit = AgentKit("forked", wal="log", settings=Settings(settle_after=0.0))

    def note(line):
        with Path("world.txt").open("a") as file:
            print(line, file=file)

    @compensator("unact", idempotent=True)
    def unact(n, idempotency_key):
        if Path("dies").exists():
            Path("dies").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        note(f"unact {n}")

    @kit.tool("COMPENSABLE", compensate=unact.using(n="$"))
    def act(n: int) -> int:
        note(f"act {n}")
        return n

    options = {}
    if "fork" in sys.argv:
        options = {"fork_at": "begin", "abandoned": "undo"}
    with kit.transaction(saga_id="s", resume=True, **options):
        act(7 if "fork" in sys.argv else 1)
        if "dies" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
    """
)


def test_a_killed_fork_is_finished_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "forked.py").write_text(PROGRAM)

    def python(*words: str) -> int:
        command = [sys.executable, "forked.py", *words]
        return subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode

    assert python("dies") == -signal.SIGKILL
    (tmp_path / "dies").touch()
    assert python("fork") == -signal.SIGKILL
    assert python("fork") == 0
    world = (tmp_path / "world.txt").read_text().split("\n")[:-1]
    assert world == ["act 1", "unact 1", "act 7"]
    monkeypatch.chdir(tmp_path)
    assert main(["show", "forked", "--wal-path", "log"]) == 0
    assert "goes another way before its first step; 1 steps are left" in capsys.readouterr().out
