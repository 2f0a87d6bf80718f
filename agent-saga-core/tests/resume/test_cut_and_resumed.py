"""Random programs that are killed anywhere and resumed until they end, against one whole run.

The world that a resumed program leaves is that of a run that nobody interrupted: no effect is there
twice under one key, none is missing, and what is undone is undone in order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_saga.cli.reading import read_log
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.views import SagaView

pytestmark = [pytest.mark.crash, pytest.mark.property, pytest.mark.timeout(3600)]

_ENDED = (SagaState.COMMITTED, SagaState.ROLLED_BACK, SagaState.PARTIAL)
_LONGEST = 12
FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"

numbers = st.integers(1, 3)
plain = st.tuples(st.sampled_from(["do", "do", "keyed", "read", "send"]), numbers)
together = st.tuples(st.just("all"), st.lists(numbers, min_size=2, max_size=3))
suspending = st.tuples(st.just("suspend"), st.integers(1, 9))
leaves = st.one_of(plain, plain, together, suspending)
savepoints = st.recursive(
    leaves,
    lambda inner: st.tuples(st.just("save"), st.lists(inner, max_size=3), st.booleans()),
    max_leaves=4,
)
programs = st.lists(savepoints, min_size=1, max_size=5)
cuts = st.lists(st.integers(1, 40), max_size=4)


class Victims:
    """The process that forks one child for every run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("victim.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, case: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def victims() -> Iterator[Victims]:
    one = Victims()
    yield one
    one.close()


class Model:
    """What stands when nobody interrupts a program."""

    def __init__(self, operations: list[Any], *, fails: bool) -> None:
        self.standing: list[tuple[str, int]] = []
        self._run(operations)
        if fails:
            self._undo(0)

    def _run(self, operations: list[Any]) -> None:
        for what, *rest in operations:
            if what == "save":
                since = len(self.standing)
                self._run(rest[0])
                if rest[1]:
                    self._undo(since)
            elif what == "all":
                self.standing += [("do", n) for n in rest[0]]
            elif what in ("do", "send") or (what == "keyed" and (what, rest[0]) not in self):
                self.standing.append((what, rest[0]))

    def __contains__(self, effect: tuple[str, int]) -> bool:
        return effect in self.standing

    def _undo(self, since: int) -> None:
        self.standing[since:] = [one for one in self.standing[since:] if one[0] == "send"]

    def world(self) -> Counter[int]:
        return Counter(n for _, n in self.standing)


def view_of(folder: Path) -> SagaView | None:
    sagas = list(read_log(folder / "log").sagas.values())
    return sagas[0] if sagas else None


def run_to_its_end(
    victims: Victims, folder: Path, case: dict[str, Any], at: list[int]
) -> SagaView | None:
    """Run a program, killed at the points that are named, until it has ended.

    Returns:
        The saga; None if it never came to a record: there was nothing to do.
    """
    case = {**case, "folder": str(folder)}
    for turn in range(_LONGEST):
        cut = at[turn] if turn < len(at) else 0
        view = view_of(folder)
        recovers = view is not None and view.state in (SagaState.UNWINDING, SagaState.RELEASED)
        code = victims.run({**case, "cut": cut, "recovers": recovers})
        trouble = folder / "trouble"
        assert code != 2, trouble.read_text() if trouble.exists() else code
        view = view_of(folder)
        if cut == 0 and (view is None or view.state in _ENDED):
            return view
    raise AssertionError(f"it does not end: {view and view.state}")


def judge(
    folder: Path, operations: list[Any], view: SagaView | None, *, fails: bool, order: bool
) -> None:
    path = folder / "world"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    done = [line for line in lines if line[0] == "do"]
    undone = [line for line in lines if line[0] == "undo"]
    assert max(Counter(line[1] for line in done).values(), default=0) <= 1
    assert max(Counter(line[1] for line in undone).values(), default=0) <= 1
    assert max(Counter(line[3] for line in undone).values(), default=0) <= 1
    stands = Counter(int(line[2]) for line in done)
    stands.subtract(int(line[2]) for line in undone)
    assert +stands == Model(operations, fails=fails).world()
    assert min(stands.values(), default=0) >= 0
    assert view is None or not (view.faults or view.standing)
    if order:
        assert_in_order(lines)


def assert_in_order(lines: list[list[str]]) -> None:
    """An inverse undoes the latest effect that stands, apart from those that stand for ever."""
    undone = {line[3] for line in lines if line[0] == "undo"}
    stack: list[str] = []
    for line in lines:
        if line[0] == "do" and line[1] in undone:
            stack.append(line[1])
        elif line[0] == "undo":
            assert stack.pop() == line[3]


@settings(
    max_examples=400 if FULL else 10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(operations=programs, fails=st.booleans(), is_async=st.booleans(), at=cuts)
def test_a_program_that_is_killed_and_resumed_leaves_the_world_of_a_whole_run(
    victims: Victims, operations: list[Any], fails: bool, is_async: bool, at: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = {"operations": operations, "fails": fails, "is_async": is_async}
        view = run_to_its_end(victims, folder, case, at)
        judge(folder, operations, view, fails=fails, order=not is_async)


PROGRAM: list[Any] = [
    ["do", 1],
    ["save", [["do", 2], ["keyed", 3]], True],
    ["all", [1, 1, 2]],
    ["suspend", 1],
    ["save", [["do", 3], ["send", 1]], False],
    ["read", 1],
]


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_program_that_only_waits_and_is_killed_meanwhile_ends(
    victims: Victims, tmp_path: Path, cut: int
) -> None:
    operations = [["suspend", 1]]
    case = {"operations": operations, "fails": False, "is_async": False}
    view = run_to_its_end(victims, tmp_path, case, [cut])
    judge(tmp_path, operations, view, fails=False, order=True)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_one_program_killed_at_every_point(
    victims: Victims, tmp_path: Path, fails: bool, is_async: bool
) -> None:
    case = {"operations": PROGRAM, "fails": fails, "is_async": is_async}
    for cut in range(1, 60, 1 if FULL else 9):
        folder = tmp_path / str(cut)
        folder.mkdir()
        view = run_to_its_end(victims, folder, case, [cut])
        judge(folder, PROGRAM, view, fails=fails, order=not is_async)
