"""What an inverse may have done stays in doubt over all processes, until it is seen or repeated.

An attempt says nothing of the attempts before it: one that died after its effect may be followed
by any number that say "not applied".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from recovery.conftest import SAGA, Log, World

from agent_saga import NotApplied, Observation, compensator, reconciler
from agent_saga.domain.records import Ev
from agent_saga.recovery.queue import cases_in

WINDOW = 0.3


def died_inside(log: Log, handler: str) -> None:
    """A process died inside an inverse that it had announced."""
    past = log.past().begin()
    past.applied("a", handler=handler)
    past.unwinding()
    past.compensating("a", handler=handler)
    past.die()


@pytest.fixture
def busy(world: World) -> str:
    """A handler, idempotent for a while, whose provider does nothing until it is told to."""

    @compensator("busy", idempotent=True, window=WINDOW)
    def busy(what: str, *, idempotency_key: str) -> None:
        if "busy" in world.there:
            raise NotApplied("busy")
        world.undo(what, idempotency_key)

    world.there.add("busy")
    return "busy"


@pytest.mark.guarantee("UNDO-3")
def test_attempts_without_effect_settle_nothing_of_the_one_that_died(
    log: Log, world: World, busy: str
) -> None:
    died_inside(log, busy)
    assert log.daemon().recover_all().needs_human
    time.sleep(WINDOW)
    world.there.clear()
    assert log.daemon().retry(SAGA, by="ann").needs_human
    assert world.undone == [], "the one that died may have taken effect"


def test_inside_the_window_they_may_be_repeated(log: Log, world: World) -> None:
    @compensator("moody", idempotent=True, window=60.0)
    def moody(what: str, *, idempotency_key: str) -> None:
        world.undo(what, idempotency_key)
        if len(world.undone) <= 3:
            raise NotApplied("busy")

    died_inside(log, "moody")
    assert log.daemon().recover_all().needs_human
    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
    assert len(set(world.keys["a"])) == 1


@pytest.mark.guarantee("UNDO-3")
@pytest.mark.parametrize(
    ("held", "outcome", "undone"), [(False, "undone", ["a"]), (True, "undone", [])]
)
def test_a_look_at_the_world_settles_it_for_good(
    log: Log, world: World, busy: str, held: bool, outcome: str, undone: list[str]
) -> None:
    died_inside(log, busy)
    assert log.daemon().recover_all().needs_human
    time.sleep(WINDOW)
    world.there.clear()

    @reconciler("busy")
    def look(what: str) -> Observation:
        return Observation(reversed_=held)

    assert log.daemon().retry(SAGA, by="ann").outcome == outcome
    assert world.undone == undone
    assert log.view().clean


def test_what_was_seen_once_counts_for_all_who_come_later(
    log: Log, world: World, busy: str
) -> None:
    """The look said that no earlier attempt holds; those after it say the same of themselves."""
    died_inside(log, busy)
    looks: list[str] = []

    @reconciler("busy")
    def look(what: str) -> Observation:
        looks.append(what)
        return Observation(reversed_=False if len(looks) == 1 else None)

    time.sleep(WINDOW)
    assert log.daemon().recover_all().needs_human
    world.there.clear()
    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
    assert world.undone == ["a"]


@pytest.mark.guarantee("UNDO-3")
def test_an_inverse_that_came_before_its_effect_is_not_repeated_under_a_key_that_is_used_up(
    log: Log, world: World
) -> None:
    """The provider would drop the repetition, and the effect would stand and be called undone."""
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    past.unwinding()
    past.compensating("a", handler="undo_again")
    past.write(Ev.STEP_COMPENSATED, "a", by="handler", attempt=1)
    inverse = {"handler": "undo_again", "kwargs": {"what": "a"}}
    past.write(Ev.STEP_LATE, "a", result="a", inverse=inverse)
    past.die()
    assert log.daemon().recover_all().needs_human
    assert world.undone == []

    @reconciler("undo_again")
    def look(what: str) -> Observation:
        return Observation(reversed_=bool(world.undone))

    assert log.daemon().retry(SAGA, by="ann").outcome == "undone"
    assert world.undone == ["a"]


PROGRAM = textwrap.dedent(
    """
    import os, signal
    from pathlib import Path
    from agent_saga import AgentKit, NotApplied

    kit = AgentKit("k", wal="log")
    WORLD = Path("world.txt")

    def note(line):
        with WORLD.open("a") as file:
            print(line, file=file)

    @kit.tool("COMPENSABLE")
    def charge(n: int) -> int:
        return n

    @charge.undo(idempotent=True, window=float(os.environ["WINDOW"]))
    def refund(result, *, idempotency_key):
        if Path("busy").exists():
            raise NotApplied("the provider is busy")
        note("refunded")
        if not Path("lives").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        with kit.transaction():
            charge(1)
            raise RuntimeError
    """
)


@pytest.mark.guarantee("UNDO-3")
def test_a_refund_whose_process_died_inside_it_is_not_made_again_behind_its_window(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    environ = {**os.environ, "AGENT_SAGA_SETTLE_AFTER": "0", "AGENT_SAGA_INVERSE_DELAY": "0"}

    def python(*words: str, window: str = "3600") -> int:
        command = [sys.executable, *words]
        within = {**environ, "WINDOW": window}
        done: Any = subprocess.run(
            command, cwd=tmp_path, env=within, check=False, capture_output=True
        )
        return int(done.returncode)

    where = ("--wal-path", "log", "--import", "shop")
    assert python("shop.py") == -signal.SIGKILL
    (tmp_path / "busy").touch()
    assert python("-m", "agent_saga.cli", "recover", *where) == 1
    (tmp_path / "busy").unlink()
    (tmp_path / "lives").touch()
    [case] = cases_in(str(tmp_path / "log"))
    retry = ("-m", "agent_saga.cli", "queue", "retry", case.id, "--by", "ann", *where)
    assert python(*retry, window="0.001") == 1
    assert (tmp_path / "world.txt").read_text().split() == ["refunded"]


# --- declared idempotent later -------------------------------------------------------------------


def attempted(log, *events):
    """Leave a saga in whose undoing a handler was tried that is idempotent only now."""
    past = log.past().begin()
    past.applied("a", handler="undo_again")
    past.unwinding()
    inverse = {"handler": "undo_again", "kwargs": {"what": "a"}}
    for event, facts in events:
        more = {"inverse": inverse, "attempt": 1} if event == Ev.STEP_COMPENSATING else {}
        past.write(event, "a", **more, **facts)
    past.die()


ONCE = (Ev.STEP_COMPENSATING, {"once": True})
KEYED = (Ev.STEP_COMPENSATING, {})
HAD_NO_EFFECT = (Ev.STEP_COMPENSATION_NOT_APPLIED, {"by": "handler"})
UNKNOWN = (Ev.STEP_COMPENSATION_UNKNOWN, {"ending": "interrupted"})
FAILED = (Ev.STEP_COMPENSATION_FAILED, {})


@pytest.mark.guarantee("ONCE-2")
@pytest.mark.parametrize(
    "events",
    [
        (ONCE,),
        (ONCE, UNKNOWN),
        (ONCE, FAILED),
        (ONCE, UNKNOWN, KEYED),
        (ONCE, UNKNOWN, KEYED, HAD_NO_EFFECT),
        (KEYED, UNKNOWN, ONCE),
    ],
)
def test_what_was_tried_without_the_declaration_is_not_repeated(log, world, events):
    attempted(log, *events)
    assert log.daemon().recover_all().needs_human
    if log.view().state.value == "STUCK":
        assert log.daemon().retry(SAGA, by="ann").needs_human
    assert world.undone == []


@pytest.mark.parametrize("events", [(KEYED, UNKNOWN), (ONCE, HAD_NO_EFFECT, KEYED)])
def test_an_attempt_that_had_no_effect_forbids_nothing(log, world, events):
    attempted(log, *events)
    assert log.daemon().recover_all().clean
    assert world.undone == ["a"]
