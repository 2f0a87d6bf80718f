"""What the log has lost as a whole and the state store knows of is a human's case."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recovery.conftest import SAGA, Log

from agent_saga import AgentKit, SagaAborted, SagaSuspended
from agent_saga.cli import ending, recoveryd
from agent_saga.cli.main import main
from agent_saga.domain import identity
from agent_saga.errors import RecoveryError, SuspendRequested
from agent_saga.recovery.vanished import KnownSagas, Vanished
from agent_saga.state.address import open_state
from agent_saga.state.base import one
from agent_saga.state.claims import claim_key, keys_of, over, raise_epoch

Typed = Callable[..., tuple[int, str]]
Lose = Callable[[Path], None]
KEY = "order-17"

PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    from agent_saga import AgentKit
    from agent_saga.errors import SuspendRequested

    kit = AgentKit("k", wal="log")

    @kit.tool("COMPENSABLE")
    def book(n: int) -> int:
        with open("world.txt", "a") as file:
            file.write("booked\\n")
        return n

    @book.undo
    def cancel(result):
        with open("world.txt", "a") as file:
            file.write("cancelled\\n")
        if "stuck" in sys.argv:
            raise ValueError

    def run():
        with kit.transaction(saga_id="order-17", resume="resume" in sys.argv):
            if "false start" in sys.argv:
                os.kill(os.getpid(), signal.SIGKILL)
            book(1)
            if "crash" in sys.argv:
                os.kill(os.getpid(), signal.SIGKILL)
            if "fail" in sys.argv or "stuck" in sys.argv:
                raise ValueError
            if "suspend" in sys.argv:
                raise SuspendRequested("a human", deadline=3600)

    if __name__ == "__main__":
        try:
            run()
        except Exception as error:
            print(type(error).__name__, error)
    """
)


class Shop:
    """A program with a saga of its own id, and its log."""

    def __init__(self, place: Path, run_here: Callable[..., tuple[int, str]]) -> None:
        self.place = place
        self.run_here = run_here
        self.log = place / "log"
        (place / "shop.py").write_text(PROGRAM)

    def run(self, *how: str) -> str:
        done: Any = subprocess.run(
            [sys.executable, "shop.py", *how],
            cwd=self.place,
            check=False,
            capture_output=True,
            text=True,
        )
        return str(done.stdout)

    def typed(self, *words: str) -> tuple[int, str]:
        return self.run_here(self.log, *words)

    def cut(self, lines: int) -> bytes:
        """Take whole records from the end of the log that was written last; return them."""
        segments = [f for f in self.log.rglob("seg-*") if f.read_bytes().strip(b"\0")]
        segment = max(segments, key=lambda f: f.stat().st_mtime_ns)
        data = segment.read_bytes()
        kept = data.rstrip(b"\0").splitlines(keepends=True)
        segment.write_bytes(b"".join(kept[:-lines]))
        return b"".join(kept[-lines:])

    @property
    def world(self) -> list[str]:
        file = self.place / "world.txt"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def shop(tmp_path: Path, typed_at: Callable[..., tuple[int, str]]) -> Shop:
    return Shop(tmp_path, typed_at)


def every_writer(log: Path) -> None:
    for folder in (log / "writers").iterdir():
        shutil.rmtree(folder)


def every_segment(log: Path) -> None:
    for segment in log.rglob("seg-*"):
        segment.unlink()


def the_folder_of_writers(log: Path) -> None:
    shutil.rmtree(log / "writers")


LOOKS = [
    ("recover",),
    ("recover", "--dry-run"),
    ("queue", "list"),
    ("doctor",),
    ("status",),
    ("list",),
    ("saga-recoveryd", "--once"),
]


@pytest.mark.guarantee("RECOVER-23")
@pytest.mark.parametrize("how", ["crash", "suspend"])
@pytest.mark.parametrize("lose", [every_writer, every_segment, the_folder_of_writers])
def test_a_saga_that_has_vanished_from_the_log_is_a_case_that_is_closed_by_name(
    shop: Shop, lose: Lose, how: str
) -> None:
    shop.run(how)
    assert shop.world == ["booked"]
    lose(shop.log)
    saga = identity.saga_id_of(KEY)
    for words in LOOKS:
        code, told = shop.typed(*words)
        assert code == 1, (words, told)
        told_of = "1 case" if "status" in words else saga
        assert told_of in told, (words, told)
    code, told = shop.typed("queue", "show", KEY)
    assert code == 1
    assert "records are lost" in told
    assert "queue close" in told
    assert "queue retry" not in told
    code, told = shop.typed("show", saga)
    assert (code, "records are lost" in told) == (3, True), told
    assert "begun before" in shop.run("resume"), "nothing of it is done again"
    assert shop.world == ["booked"]
    code, told = shop.typed("queue", "retry", saga, "--by", "ann")
    assert code == 4, told
    close = ("queue", "close", KEY, "--by", "ann", "--reason", "looked")
    code, told = shop.typed(*close)
    assert code == 0, told
    for words in LOOKS:
        code, told = shop.typed(*words)
        assert code == 0, (words, told)
    assert shop.typed(*close)[0] == 4, "it is no case any more"
    shop.run("resume")
    assert shop.world == ["booked"]


def test_what_began_and_died_before_its_first_step_is_no_case(shop: Shop) -> None:
    shop.run("false start")
    assert shop.typed("queue", "list")[0] == 0
    shop.run("resume")
    assert shop.world == ["booked"]
    assert shop.typed("queue", "list")[0] == 0


def test_what_ended_is_no_case_when_its_records_are_gone(shop: Shop) -> None:
    shop.run()
    every_writer(shop.log)
    assert shop.typed("queue", "list")[0] == 0
    assert "begun before" in shop.run("resume"), "and is not done again"
    assert shop.world == ["booked"]


def test_what_left_by_compaction_is_no_case(shop: Shop) -> None:
    shop.run()
    with open_state(f"file:{shop.log}") as store:
        # The process died, as it were, before it could tell the store of the end.
        saga = identity.saga_id_of(KEY)
        doc = store.get(claim_key(saga))
        assert doc is not None
        assert doc["ended"]

        def rule(docs: Any) -> Any:
            from agent_saga.state.base import Change

            mark = {"owner": "x", "epoch": 1, "records": True}
            return Change(None, {claim_key(saga): {**doc, "ended": False}, keys_of(saga)[1]: mark})

        store.transact(keys_of(saga), rule)
    from agent_saga import RecoveryDaemon

    daemon = RecoveryDaemon(shop.log)
    assert daemon.cases() == []
    assert daemon.compact(grace_seconds=0).sagas == 1
    assert daemon.cases() == []
    daemon.close()


def test_a_suspended_saga_without_an_id_of_its_own_is_known_too(
    tmp_path: Path, typed_at: Callable[..., tuple[int, str]]
) -> None:
    kit = AgentKit("k", wal=str(tmp_path / "log"))
    done: list[int] = []

    @kit.tool("COMPENSABLE")
    def book(n: int) -> int:
        done.append(n)
        return n

    @book.undo
    def cancel(result: Any) -> None:
        pass

    with pytest.raises(SagaSuspended), kit.transaction() as saga:
        name = saga.id
        book(1)
        raise SuspendRequested("a human", deadline=3600)
    every_writer(tmp_path / "log")
    code, told = typed_at(tmp_path / "log", "queue", "list")
    assert (code, name in told) == (1, True)
    with pytest.raises(RecoveryError, match="lost"), kit.transaction(saga_id=name, resume=True):
        book(1)
    assert done == [1]


@pytest.fixture
def typed_at(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(path: Path, *words: str) -> tuple[int, str]:
        capsys.readouterr()
        more = ["--wal-path", str(path)]
        if words[0] == "saga-recoveryd":
            code = ending.run(recoveryd.program, words[0], [*words[1:], *more])
        else:
            code = main([*words, *more])
        out, err = capsys.readouterr()
        return int(code), out + err

    return run


def test_a_closing_that_was_cut_short_leaves_a_case(
    log: Log, typed_at: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_saga.recovery import claim, queue

    past = log.past().begin()
    past.applied("a")
    past.die()
    with open_state(str(log.path)) as store:
        rule = over(SAGA, lambda doc: raise_epoch(doc, owner="gone", seen=1), records=True)
        store.transact(keys_of(SAGA), rule)
    every_writer(log.path)
    for place, name in ((claim, "_announced"), (queue, "_closing")):
        with monkeypatch.context() as patched:

            def dies(*args: Any, **more: Any) -> None:
                raise KeyboardInterrupt

            patched.setattr(place, name, dies)
            with pytest.raises(KeyboardInterrupt):
                log.daemon().close_case(SAGA, by="ann", reason="x")
        log.close()
        code, told = typed_at(log.path, "queue", "list")
        assert (code, SAGA in told) == (1, True), told
    log.daemon().close_case(SAGA, by="ann", reason="x")
    log.close()
    assert typed_at(log.path, "queue", "list")[0] == 0


@pytest.mark.guarantee("RECOVER-24")
@pytest.mark.parametrize(
    ("how", "lines"),
    [("suspend", 1), ("suspend", 3), ("commit", 1), ("commit", 2), ("fail", 1), ("fail", 2)],
)
def test_records_taken_from_the_end_of_the_log_let_nothing_run_again(
    shop: Shop, how: str, lines: int
) -> None:
    shop.run(how)
    before = shop.world
    cut = shop.cut(lines + 2)  # beside the two that a writer closes with
    assert b"SAGA_" in cut
    for words in (("recover",), ("queue", "list"), ("status",)):
        code, told = shop.typed(*words)
        assert code == 1, (words, told)
    assert "records are lost" in shop.typed("queue", "list")[1]
    told = shop.run("resume")
    assert "RecoveryError" in told
    assert "lost" in told
    assert shop.world == before


@pytest.mark.guarantee("RECOVER-24")
def test_an_undoing_that_was_cut_from_the_log_is_not_repeated(shop: Shop) -> None:
    shop.run("commit")
    saga = identity.saga_id_of(KEY)
    words = ("undo", saga, "--by", "ann", "--reason", "x")
    with_handlers = [sys.executable, "-m", "agent_saga.cli", *words, "--import", "shop"]
    program = [*with_handlers, "--wal-path", "log"]
    done: Any = subprocess.run(program, cwd=shop.place, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.world == ["booked", "cancelled"]
    while b"SAGA_UNWINDING" not in shop.cut(1):
        pass
    done = subprocess.run(program, cwd=shop.place, check=False, capture_output=True, text=True)
    assert done.returncode == 4, done.stdout + done.stderr
    assert shop.world == ["booked", "cancelled"]


@pytest.mark.guarantee("RECOVER-23")
def test_a_case_stays_one_when_the_log_loses_it(shop: Shop) -> None:
    shop.run("stuck")
    assert shop.typed("queue", "list")[0] == 1
    every_writer(shop.log)
    assert shop.typed("queue", "list")[0] == 1
    assert shop.typed("recover")[0] == 1
    assert shop.typed("queue", "close", KEY, "--by", "ann", "--reason", "looked")[0] == 0
    assert shop.typed("queue", "list")[0] == 0


@pytest.mark.guarantee("RECOVER-24")
def test_an_undoing_that_was_lost_as_a_whole_is_told_of_and_lets_nobody_read_the_saga(
    shop: Shop,
) -> None:
    shop.run("commit")
    before = set((shop.log / "writers").iterdir())
    words = ("undo", identity.saga_id_of(KEY), "--by", "ann", "--reason", "x", "--import", "shop")
    program = [sys.executable, "-m", "agent_saga.cli", *words, "--wal-path", "log"]
    done: Any = subprocess.run(program, cwd=shop.place, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for folder in set((shop.log / "writers").iterdir()) - before:
        shutil.rmtree(folder)
    code, told = shop.typed("show", KEY)
    assert (code, "LOST: it had ended in epoch 2" in told) == (1, True), told
    assert "cannot be resumed: it had ended in epoch 2" in shop.run("resume")
    assert shop.world == ["booked", "cancelled"]


def test_a_mark_of_another_form_is_no_reason_to_say_nothing(
    tmp_path: Path, typed_at: Callable[..., tuple[int, str]]
) -> None:
    path = tmp_path / "log"
    kit = AgentKit("k", wal=str(path))
    with kit.transaction(saga_id="x"):
        pass
    with open_state(f"file:{path}") as store:
        for number, mark in enumerate(({}, {"owner": 7}, {"owner": "../x", "epoch": "1"})):
            key = f"open/s{number}"
            store.transact([key], one(key, lambda _, mark=mark: (mark, None)))  # type: ignore[misc]
    code, told = typed_at(path, "queue", "list")
    assert (code, told.count("records are lost")) == (1, 3), told


def test_a_boundary_without_steps_leaves_no_mark_that_is_looked_at_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "log"
    kit = AgentKit("k", wal=str(path))
    with kit.transaction(saga_id="x"):
        pass
    with contextlib.suppress(SagaAborted), kit.transaction(saga_id="y"):
        raise ValueError
    with open_state(f"file:{path}") as store:
        assert store.scan("open/") == []
        assert len(store.scan("claim/")) == 2, "the ids stay taken"
    with kit.transaction(saga_id="x", resume=True), open_state(f"file:{path}") as store:
        assert [key for key, _ in store.scan("open/")] == [f"open/{identity.saga_id_of('x')}"]


def test_what_was_found_in_order_is_not_read_again(shop: Shop) -> None:
    shop.run("false start")
    read: list[str] = []

    def is_whole(writer: str) -> bool:
        read.append(writer)
        return True

    with open_state(f"file:{shop.log}") as store:
        looks = Vanished(KnownSagas(lambda: store))
        assert looks.beside(str(shop.log), (), is_whole) == []
        assert looks.beside(str(shop.log), (), is_whole) == []
    assert len(read) == 1


@pytest.mark.guarantee("RECOVER-23")
def test_a_store_that_cannot_be_read_stops_no_look_and_is_told(shop: Shop) -> None:
    shop.run()
    for words in (("recover",), ("recover", "--dry-run"), ("queue", "list"), ("status",)):
        assert shop.typed(*words)[0] == 0
    for file in shop.log.glob("state.sqlite*"):
        file.write_bytes(b"no database" * 1000)
    for words in (("recover",), ("recover", "--dry-run"), ("queue", "list"), ("status",)):
        code, told = shop.typed(*words)
        assert code != 0, (words, told)
        assert "what the log has lost cannot be told" in told, (words, told)
