"""Undoing a committed saga up to a step: exactly what came after it, once, in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recovery.conftest import SAGA, Log, World, key_of

from agent_saga import AgentKit, compensator
from agent_saga.cli.main import main
from agent_saga.domain import identity
from agent_saga.domain.records import Ev
from agent_saga.engine import journal
from agent_saga.errors import NotRecordable, UndoRefused
from agent_saga.plugins.registry import process_handlers
from agent_saga.recovery import claim as claiming
from agent_saga.recovery import undo as undoing
from agent_saga.recovery.queue import cases_in


def committed(log: Log, *steps: str, handler: str = "undo_again") -> None:
    past = log.past().begin()
    for step in steps:
        past.applied(step, handler=handler)
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()


def undo(log: Log, to: str | None, **options: Any) -> Any:
    return log.daemon().undo(SAGA, by="ann", reason="too far", to=to, **options)


@pytest.mark.guarantee("UNDO-2")
def test_exactly_what_came_after_is_undone_latest_first(log: Log, world: World) -> None:
    committed(log, "a", "b", "c", "d")
    done = undo(log, "b")
    assert done.outcome == "undone"
    assert done.report.clean
    assert "as far as the steps after tool_b" in done.report.summary()
    assert world.undone == ["d", "c"]
    assert world.keys["c"] == [key_of("c", identity.INVERSE)]
    view = log.view()
    assert (view.state.value, view.clean) == ("COMMITTED", True)
    assert log.states() == {
        "a": "COMMITTED",
        "b": "COMMITTED",
        "c": "COMPENSATED",
        "d": "COMPENSATED",
    }
    assert log.daemon().recover_all().clean
    assert world.undone == ["d", "c"]


@pytest.mark.guarantee("UNDO-2")
def test_it_can_be_undone_further_and_as_a_whole(log: Log, world: World) -> None:
    committed(log, "a", "b", "c", "d")
    undo(log, "c")
    undo(log, "a")
    assert world.undone == ["d", "c", "b"]
    assert log.daemon().undo(SAGA, by="ann", reason="all of it").outcome == "undone"
    assert world.undone == ["d", "c", "b", "a"]
    assert log.view().state.value == "ROLLED_BACK"
    assert log.view().clean


def test_a_second_time_is_refused(log: Log, world: World) -> None:
    committed(log, "a", "b")
    undo(log, "a")
    with pytest.raises(UndoRefused, match="Nothing of saga"):
        undo(log, "a")
    assert world.undone == ["b"]


@pytest.mark.parametrize("to", ["b", "tool_b"])
def test_a_step_is_named_by_its_id_or_its_tool(log: Log, world: World, to: str) -> None:
    committed(log, "a", "b", "c")
    undo(log, to)
    assert world.undone == ["c"]


def test_a_step_that_is_not_there_or_not_only_one_is_refused(log: Log, world: World) -> None:
    committed(log, "aa", "ab", "c")
    with pytest.raises(UndoRefused, match=r"may be one of 2 steps") as refused:
        undo(log, "a")
    assert "tool_aa [aa]" in refused.value.fix
    with pytest.raises(UndoRefused, match="is no step"):
        undo(log, "z")
    assert world.undone == []
    assert Ev.SAGA_CLAIM not in log.events()


def test_what_did_not_take_effect_or_was_undone_is_no_point(log: Log, world: World) -> None:
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    past.intent("n")
    past.write(Ev.STEP_NOT_APPLIED, "n", by="tool", evidence="", final=True)
    past.applied("b", handler="undo_again")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    with pytest.raises(UndoRefused, match="NOT_APPLIED"):
        undo(log, "n")
    undo(log, "a")
    with pytest.raises(UndoRefused, match="COMPENSATED"):
        undo(log, "b")


def test_what_cannot_be_undone_before_the_step_is_nobodys_concern(log: Log, world: World) -> None:
    past = log.past().begin()
    past.applied("a", handler="nobody.knows")
    past.intent("p", "IRREVERSIBLE", approved_by="ann")
    past.write(Ev.STEP_COMMITTED, "p", result="sent")
    past.applied("b", handler="undo_again")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    with pytest.raises(UndoRefused, match="tool_p"):
        undo(log, "a")
    assert undo(log, "p").outcome == "undone"
    assert world.undone == ["b"]
    assert log.view().clean


def test_the_plan_names_every_step(log: Log, world: World) -> None:
    committed(log, "a", "b", "c")
    plan = log.daemon().plan(SAGA, to="b")
    assert [(step.what, step.step) for step in plan.steps] == [
        ("undo", "c"),
        ("leave", "b"),
        ("leave", "a"),
    ]
    assert world.undone == []
    assert Ev.SAGA_CLAIM not in log.events()


# --- interrupted ----------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process."""


def interrupted(
    log: Log, to: str | None, monkeypatch: pytest.MonkeyPatch, where: str, after: int
) -> None:
    """Undo up to a step in a process that dies at the n-th time that it comes to a place."""
    daemon = log.daemon()
    module, name = where.rsplit(".", 1)
    real = getattr(sys.modules[module], name)
    left = [after]

    def dies(*args: Any, **how: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(*args, **how)

    with monkeypatch.context() as dying:
        dying.setattr(claiming, "_let_go", lambda *args: None)
        dying.setattr(where, dies)
        with pytest.raises(Killed):
            daemon.undo(SAGA, by="ann", reason="too far", to=to)
    daemon._place().wal.close()


@pytest.mark.guarantee("UNDO-2")
@pytest.mark.parametrize("after", [0, 1])
def test_whoever_goes_on_undoes_the_same_steps_and_no_others(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    committed(log, "a", "b", "c", "d")
    interrupted(log, "b", monkeypatch, "agent_saga.engine.inverse._announced", after)
    with pytest.raises(UndoRefused, match="up to the step b"):
        log.daemon().undo(SAGA, by="ann", reason="all of it")
    with pytest.raises(UndoRefused, match="up to the step b"):
        undo(log, "a")
    assert [one.outcome for one in log.daemon().recover_all().sagas] == ["undone"]
    assert world.undone == ["d", "c"]
    assert log.view().state.value == "COMMITTED"
    assert log.view().clean


@pytest.mark.guarantee("UNDO-2")
def test_the_same_command_goes_on(log: Log, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(log, "a", "b", "c")
    interrupted(log, "a", monkeypatch, "agent_saga.engine.inverse._succeeded", 0)
    assert undo(log, "a").outcome == "undone"
    assert world.undone == ["c", "c", "b"]
    assert len(set(world.keys["c"])) == 1, "an idempotent handler is repeated with its key"


def test_an_interrupted_undoing_of_the_whole_saga_is_not_made_a_part(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(log, "a", "b")
    interrupted(log, None, monkeypatch, "agent_saga.engine.inverse._announced", 0)
    with pytest.raises(UndoRefused, match="as a whole"):
        undo(log, "a")
    assert world.undone == []


@pytest.mark.guarantee("UNDO-2")
def test_a_case_that_came_of_it_is_retried_for_the_same_steps(log: Log, world: World) -> None:
    broken = [True]

    @compensator("sometimes", idempotent=True)
    def sometimes(what: str, *, idempotency_key: str) -> None:
        if broken:
            raise OSError(what)
        world.undo(what, idempotency_key)

    committed(log, "a", "b", "c", handler="sometimes")
    assert undo(log, "a").needs_human
    assert log.view().state.value == "STUCK"
    broken.clear()
    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
    assert world.undone == ["c", "b"]
    assert log.view().state.value == "COMMITTED"


def test_a_closed_one_tells_what_stands_of_it(
    log: Log, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(what: str, *, idempotency_key: str) -> None:
        raise ValueError

    compensator("fails")(fails)
    past = log.past().begin()
    past.applied("a")
    past.applied("b", handler="fails")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    assert undo(log, "a").outcome == "needs a human"
    log.daemon().close_case(SAGA, by="ann", reason="by hand")
    log.close()
    assert main(["show", SAGA, "--wal-path", str(log.path)]) == 0
    told = capsys.readouterr().out
    assert "closed by ann: by hand; the saga is committed again" in told
    assert "was committed: clean" in told


@pytest.mark.guarantee("QUEUE-3")
@pytest.mark.parametrize("retried", [False, True])
def test_closing_settles_what_came_after_and_the_rest_can_be_undone(
    log: Log, world: World, retried: bool
) -> None:
    """What a person has put right by hand is left alone, by whatever is undone later."""

    def fails(what: str, *, idempotency_key: str) -> None:
        world.undo(f"failed {what}", idempotency_key)
        raise ValueError

    compensator("fails")(fails)
    past = log.past().begin()
    for step in ("a", "b", "c", "d"):
        past.applied(step, handler="fails" if step == "d" else "undo_again")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    assert undo(log, "b").needs_human
    if retried:
        assert log.daemon().retry(SAGA, by="ann").needs_human
    failed = list(world.undone)
    log.daemon().close_case(SAGA, by="ann", reason="by hand")
    assert (log.view().state.value, log.view().clean) == ("COMMITTED", True)
    assert log.states() == {"a": "COMMITTED", "b": "COMMITTED", "c": "CLOSED", "d": "CLOSED"}
    assert log.daemon().recover_all().clean
    with pytest.raises(UndoRefused, match="CLOSED"):
        undo(log, "c")
    plan = log.daemon().plan(SAGA)
    assert [(step.what, step.step) for step in plan.steps] == [
        ("leave", "d"),
        ("leave", "c"),
        ("undo", "b"),
        ("undo", "a"),
    ]
    done = undo(log, None)
    assert done.report.clean
    assert world.undone == [*failed, "b", "a"]
    assert log.view().state.value == "ROLLED_BACK"
    assert log.view().clean


def test_a_step_that_stays_by_approval_leaves_the_rest_to_be_undone(log: Log, world: World) -> None:
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    past.applied("b", handler="undo_again")
    past.intent("p", "IRREVERSIBLE", approved_by="ann")
    past.write(Ev.STEP_COMMITTED, "p", result="sent")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    done = undo(log, "a", leave_the_rest=True)
    assert (done.report.outcome, done.report.clean, done.stands) == ("COMMITTED", False, True)
    assert (log.view().state.value, log.view().clean) == ("COMMITTED", False)
    assert cases_in(str(log.path)) == []
    done = undo(log, None, leave_the_rest=True)
    assert world.undone == ["b", "a"]
    assert (done.report.outcome, done.stands) == ("PARTIAL", True)


def test_a_recorded_end_that_no_such_undoing_came_before_is_a_fault(log: Log) -> None:
    past = log.past().begin()
    past.applied("a")
    past.unwinding()
    past.end(Ev.SAGA_UNDONE_TO)
    past.die()
    assert log.view().faults
    assert not log.view().clean


@pytest.mark.parametrize("only", [None, "a", [1], {}])
def test_steps_that_cannot_be_read_are_a_fault(log: Log, world: World, only: Any) -> None:
    past = log.past().begin()
    past.applied("a")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.write(Ev.SAGA_UNWINDING, cause="x", scope=[], to="a", only=only)
    past.die()
    [one] = log.daemon().recover_all().sagas
    assert one.needs_human
    assert world.undone == []


# --- inputs that nobody chose ---------------------------------------------------------------------


@pytest.mark.guarantee("UNDO-2")
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_order_any_point_any_cut(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log, world = Log(tmp_path_factory.mktemp("to") / "log"), World()
    names = [f"s{n}" for n in range(data.draw(st.integers(1, 5), "steps"))]
    ends = data.draw(st.permutations(names), "order of the outcomes")
    point = data.draw(st.sampled_from(names), "point")
    cuts = data.draw(st.lists(st.integers(0, 3), max_size=2), "cuts")
    past = log.past().begin()
    for name in names:
        past.intent(name)
    for name in ends:
        past.committed(name, handler="undo_any")
    past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()
    expected = list(reversed(ends[ends.index(point) + 1 :]))
    with process_handlers().isolated(), pytest.MonkeyPatch.context() as patch:

        @compensator("undo_any", idempotent=True)
        def undo_any(what: str, *, idempotency_key: str) -> None:
            world.undo(what, idempotency_key)

        for cut in cuts:
            if cut < len(expected) - len(world.undone):
                interrupted(log, point, patch, "agent_saga.engine.inverse._announced", cut)
        if expected:
            assert undo(log, point).outcome == "undone"
        else:
            with pytest.raises(UndoRefused):
                undo(log, point)
    log.close()
    assert world.undone == expected
    assert log.view().clean


# --- real processes -------------------------------------------------------------------------------

PROGRAM = textwrap.dedent(
    """
    import os, signal
    from pathlib import Path
    from agent_saga import AgentKit, compensator

    kit = AgentKit("far", wal="log")

    def note(line):
        with Path("world.txt").open("a") as file:
            print(line, file=file)

    @compensator("unact", idempotent=True)
    def unact(n, idempotency_key):
        note(f"unact {n}")
        if Path("dies").exists():
            Path("dies").unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    @kit.tool("COMPENSABLE", compensate=unact.using(n="$"))
    def act(n: int) -> int:
        note(f"act {n}")
        return n

    if __name__ == "__main__":
        with kit.transaction(saga_id="s"):
            for n in (1, 2, 3):
                act(n)
    """
)


def test_a_killed_command_that_is_given_again_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "far.py").write_text(PROGRAM)

    def python(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)

    assert python("far.py").returncode == 0
    monkeypatch.chdir(tmp_path)
    main(["list", "--wal-path", "log", "--json"])
    [saga] = json.loads(capsys.readouterr().out)["sagas"]
    main(["show", saga["saga"], "--wal-path", "log", "--json"])
    first = json.loads(capsys.readouterr().out)["steps"][0]["step"]
    words = ["-m", "agent_saga.cli", "undo", saga["saga"], "--to", first[:10], "--import", "far"]
    words += ["--wal-path", "log", "--by", "ann", "--reason", "too far"]
    dry = python(*words, "--dry-run")
    assert dry.returncode == 0
    assert dry.stdout.count("undo ") == 2
    Path("dies").touch()
    assert python(*words).returncode == -signal.SIGKILL
    again = python(*words)
    assert again.returncode == 0, again.stderr
    assert python(*words).returncode == 4
    world = Path("world.txt").read_text().split("\n")[:-1]
    assert world == ["act 1", "act 2", "act 3", "unact 3", "unact 3", "unact 2"]


def test_the_command_takes_the_programs_own_id_a_name_or_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kit = AgentKit("named", wal="log")

    @kit.tool("COMPENSABLE", name="act")
    def act(n: int) -> int:
        return n

    @act.undo
    def unact(result: int) -> None: ...

    with kit.transaction("an order", saga_id="order-17") as saga:
        act(1)
    with kit.transaction("an order"):
        act(2)
    who = ("--by", "ann", "--reason", "x", "--wal-path", "log", "--dry-run")
    for wanted in ("order-17", saga.id, saga.id[:12]):
        assert main(["undo", wanted, *who]) == 0
        assert capsys.readouterr().out.count("undo ") == 1
        assert main(["show", wanted, "--wal-path", "log"]) == 0
        assert "order-17" in capsys.readouterr().out
    assert main(["undo", "an order", *who]) == 2
    assert "may be one of 2 sagas" in capsys.readouterr().err
    assert main(["undo", "nobody", *who]) == 3
    assert main(["undo", "order-17", *who, "--to", "nothing"]) == 3


def test_only_a_dry_run_needs_nobody_and_no_reason(
    log: Log, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(log, "a")
    words = ["undo", SAGA, "--wal-path", str(log.path)]
    assert main([*words, "--dry-run"]) == 0
    for told, missing in (((), "--by"), (("--by", "ann"), "--reason")):
        assert main([*words, *told]) == 2
        assert f"Missing option '{missing}'" in capsys.readouterr().err
    assert not world.undone


@pytest.mark.guarantee("UNDO-2")
def test_more_steps_than_a_record_can_name_are_refused_not_cut(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotRecordable):
        journal.step_list([f"{n:022}" for n in range(60_000)])
    committed(log, "a", "b", "c", "d")

    def small(steps: Any) -> Any:
        if len(steps) > 2:
            raise NotRecordable
        return journal.step_list(steps)

    monkeypatch.setattr(undoing, "step_list", small)
    with pytest.raises(UndoRefused, match="3 steps after that are too many"):
        undo(log, "a")
    assert world.undone == []
    assert undo(log, "b").outcome == "undone"
    assert world.undone == ["d", "c"]


@pytest.mark.parametrize("nothing", ["", " "])
def test_no_step_is_not_every_step(log: Log, world: World, nothing: str) -> None:
    committed(log, "a", "b")
    with pytest.raises(UndoRefused, match="is no step"):
        undo(log, nothing)
    assert world.undone == []
