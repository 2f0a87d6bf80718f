"""What came before a step whose inverse is missing is not undone; the plan says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recovery.conftest import SAGA, Log, World

from agent_saga import compensator
from agent_saga.cli.main import main
from agent_saga.domain.records import Ev

WHO = ("--by", "ann", "--reason", "because")
UNDO = ("undo", SAGA, *WHO, "--leave-the-rest")
RECOVER = ("recover", "--leave-missing")
RETRY = ("queue", "retry", SAGA, "--by", "ann")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SAGA_SETTLE_AFTER", "0")
    monkeypatch.setenv("AGENT_SAGA_INVERSE_DELAY", "0")


def left(log: Log, words: tuple[str, ...]) -> None:
    past = log.past().begin()
    past.applied("a")
    past.applied("b", handler="gone")
    past.applied("c")
    if words is UNDO:
        past.end(Ev.SAGA_COMMITTED, unsettled=[])
    past.die()


def register(world: World) -> None:
    @compensator("gone")
    def gone(what: str) -> None:
        world.undone.append(what)


def typed(log: Log, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main([*words, "--wal-path", str(log.path), "--json"])
    return int(code), json.loads(capsys.readouterr().out)


def planned(told: Any) -> dict[str, str]:
    [plan] = told.get("sagas", [told])
    return {step["step"]: step["what"] for step in plan["steps"]}


@pytest.mark.parametrize("words", [UNDO, RECOVER], ids=lambda words: words[0])
def test_undoing_halts_before_a_missing_inverse_and_goes_on_in_order_when_it_is_there(
    log: Log, world: World, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    left(log, words)
    code, told = typed(log, capsys, *words, "--dry-run")
    assert code == 1
    assert planned(told) == {"c": "undo", "b": "cannot", "a": "cannot"}
    assert "halts at tool_b" in json.dumps(told)
    assert typed(log, capsys, *words)[0] == 1
    assert world.undone == ["c"]
    assert log.states() == {"a": "UNRESOLVED", "b": "UNRESOLVED", "c": "COMPENSATED"}
    register(world)
    assert typed(log, capsys, *RETRY)[0] == 0
    assert world.undone == ["c", "b", "a"]


@pytest.mark.parametrize("words", [UNDO, RECOVER], ids=lambda words: words[0])
def test_who_does_not_mind_the_order_goes_on_past_it(
    log: Log,
    world: World,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv("AGENT_SAGA_AFTER_STUCK", "continue")
    left(log, words)
    code, told = typed(log, capsys, *words, "--dry-run")
    assert (code, planned(told)) == (1, {"c": "undo", "b": "cannot", "a": "undo"})
    assert typed(log, capsys, *words)[0] == 1
    assert world.undone == ["c", "a"]
    register(world)
    assert typed(log, capsys, *RETRY)[0] == 0
    assert world.undone == ["c", "a", "b"]
