"""What the state store knows of and the log has lost is a human's case; nothing of it is run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recovery.conftest import SAGA, Log, World
from recovery.states import crashed

from agent_saga import RecoveryDaemon
from agent_saga.cli.main import main
from agent_saga.domain.records import Ev
from agent_saga.errors import RecoveryError
from agent_saga.recovery import queue
from agent_saga.state.address import open_state
from agent_saga.state.base import one
from agent_saga.state.claims import claim_key, raise_epoch, release

Typed = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SAGA_SETTLE_AFTER", "0")
    monkeypatch.setenv("AGENT_SAGA_INVERSE_DELAY", "0")


@pytest.fixture
def typed(log: Log, capsys: pytest.CaptureFixture[str]) -> Typed:
    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main([*words, "--wal-path", str(log.path)])
        out, err = capsys.readouterr()
        return int(code), out + err

    return run


def folders(log: Log) -> set[Path]:
    return set((log.path / "writers").iterdir())


def lose_the_daemons_log(log: Log, act: Callable[[RecoveryDaemon], Any]) -> None:
    """Let a daemon act, end, and lose everything that it wrote."""
    before = folders(log)
    act(log.daemon())
    log.close()
    for folder in folders(log) - before:
        shutil.rmtree(folder)


def undone_and_lost(log: Log) -> None:
    crashed(log)
    lose_the_daemons_log(log, lambda daemon: daemon.recover_all())


def taken_over_and_lost(log: Log) -> None:
    """A daemon died in the middle of undoing: it had raised the epoch, and its log is gone."""
    crashed(log)
    with open_state(str(log.path)) as store:
        key = claim_key(SAGA)
        gone = "20200101T000000000000-0123456789abcdef"
        rule = one(key, lambda doc: raise_epoch(doc, owner=gone, seen=1))
        store.transact([key], rule, durable=True)


def taken_over_and_emptied(log: Log) -> None:
    """The same, and only the files of its log are gone; its folder and its lock are there."""
    crashed(log)
    other = log.past("other").begin()
    with open_state(str(log.path)) as store:
        key = claim_key(SAGA)
        rule = one(key, lambda doc: raise_epoch(doc, owner=other.wal.writer, seen=1))
        store.transact([key], rule, durable=True)
    folder = log.path / "writers" / other.wal.writer
    other.die()
    for segment in folder.glob("seg-*"):
        segment.unlink()


def suspended_later_and_lost(log: Log) -> None:
    """A process resumed it, suspended it again, and its log is gone."""
    past = log.past().begin()
    past.applied("a")
    past.write(Ev.SAGA_SUSPENDED, reason="a human", deadline=1, at_deadline="undo")
    past.die()
    with open_state(str(log.path)) as store:
        key, owner = claim_key(SAGA), "20200101T000000000000-0123456789abcdef"
        for rule in (
            lambda doc: raise_epoch(doc, owner=owner, seen=1),
            lambda doc: release(doc, owner=owner, epoch=2, deadline=1),
        ):
            store.transact([key], one(key, rule), durable=True)


LOST = [undone_and_lost, taken_over_and_lost, taken_over_and_emptied, suspended_later_and_lost]


@pytest.mark.guarantee("RECOVER-21")
@pytest.mark.parametrize("lose", LOST, ids=lambda lose: lose.__name__)
def test_what_is_lost_is_a_case_that_is_closed_by_name_and_never_undone(
    log: Log, world: World, typed: Typed, lose: Callable[[Log], None]
) -> None:
    lose(log)
    before = list(world.undone)
    for looks in (("recover",), ("recover", "--dry-run"), ("queue", "list")):
        code, told = typed(*looks)
        assert (code, "records are lost, and inverses may have run" in told) == (1, True), looks
    code, told = typed("queue", "show", SAGA)
    assert code == 1
    assert "records are lost" in told
    assert "It did, as far as the log tells:\n  - tool_a [a]: it took effect" in told
    assert "queue retry" not in told
    assert "queue close" in told
    for words in (
        ("queue", "retry", SAGA, "--by", "ann"),
        ("undo", SAGA, "--by", "ann", "--reason", "x"),
    ):
        code, told = typed(*words)
        assert (code, "records are lost" in told) == (4, True), words
    close = ("queue", "close", SAGA, "--by", "ann", "--reason", "looked at the world")
    assert typed(*close)[0] == 0
    assert typed("queue", "list")[0] == 0
    assert typed("recover")[0] == 0
    assert typed("queue", "retry", SAGA, "--by", "ann")[0] == 4
    assert world.undone == before, "nothing was run"
    assert log.view().state.value == "CLOSED"


def test_the_notifiers_are_told_of_what_is_lost(log: Log, world: World) -> None:
    undone_and_lost(log)
    told: list[Any] = []
    log.daemon(notifiers={"mail": told.append}).recover_all()
    [case] = told
    assert case.saga == SAGA
    assert "records are lost" in case.reason
    assert world.undone == ["a"]


@pytest.mark.guarantee("RECOVER-21")
def test_a_closing_that_was_cut_short_lets_nobody_undo_it(
    log: Log, world: World, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone_and_lost(log)
    before = folders(log)

    def dies(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    for place in ("bare", "_closing"):
        with monkeypatch.context() as patched:
            patched.setattr(queue, place, dies)
            daemon = log.daemon()
            with pytest.raises(KeyboardInterrupt):
                daemon.close_case(SAGA, by="ann", reason="x")
        log.close()
        assert typed("recover")[0] == 1
        assert world.undone == ["a"]
    for folder in folders(log) - before:
        shutil.rmtree(folder)
    assert typed("recover")[0] == 1, "and if that process's log is lost too"
    assert world.undone == ["a"]
    assert typed("queue", "close", SAGA, "--by", "ann", "--reason", "x")[0] == 0
    assert typed("recover")[0] == 0
    assert world.undone == ["a"]


def test_a_claimer_that_died_before_it_said_anything_has_lost_nothing(
    log: Log, world: World
) -> None:
    crashed(log)
    other = log.past("other").begin()
    with open_state(str(log.path)) as store:
        key = claim_key(SAGA)
        rule = one(key, lambda doc: raise_epoch(doc, owner=other.wal.writer, seen=1))
        store.transact([key], rule, durable=True)
    other.die()
    assert not [one for one in log.daemon().cases() if one.id == SAGA]
    log.daemon().recover_all()
    assert world.undone == ["a"]


def test_a_saga_that_somebody_ends_meanwhile_is_no_case(log: Log, world: World) -> None:
    """Two daemons at once: what one has read is old when it asks the store."""
    crashed(log)
    first, second = log.daemon(), log.daemon()
    known = second._proofs._sagas
    assert known is not None
    looked = known.claim

    def meanwhile(saga: str) -> Any:
        first.recover_all()
        return looked(saga)

    known.claim = meanwhile  # type: ignore[method-assign]
    result = second.recover_all()
    assert [one for one in result.sagas if one.needs_human] == []
    assert world.undone == ["a"]


def test_a_store_that_cannot_be_read_is_no_empty_queue(log: Log, typed: Typed) -> None:
    crashed(log)
    log.daemon().forecast()
    (log.path / "state.sqlite").write_bytes(b"no database" * 1000)
    code, told = typed("queue", "list")
    assert code != 0
    assert "store" in told


def test_a_program_that_asks_is_told_the_same(log: Log, world: World) -> None:
    undone_and_lost(log)
    with pytest.raises(RecoveryError, match="records are lost") as refused:
        log.daemon().retry(SAGA, by="ann")
    assert "queue close" in refused.value.fix
    assert json.dumps(world.undone) == '["a"]'
