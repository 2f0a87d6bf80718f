"""What is given to a daemon, a log or the logging and is none of it: refused where it is given."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_saga import AgentKit, FileWAL, RecoveryDaemon, configure_logging, saga_lifespan
from agent_saga.errors import AgentSagaError, ConfigurationError


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def later(saga: object) -> None: ...


DAEMON: dict[str, dict[str, Any]] = {
    "told: a number": {"told": 5},
    "told: a text": {"told": "ops"},
    "told: a function": {"told": print},
    "told: names": {"told": ["ops"]},
    "told: asynchronous": {"told": [later]},
    "told: asynchronous, wrapped": {"told": [functools.partial(later)]},
    "notifiers: a number": {"notifiers": 5},
    "notifiers: a list": {"notifiers": [print]},
    "notifiers: names": {"notifiers": {"mail": "ops"}},
    "notifiers: no name": {"notifiers": {"": print}},
    "notifiers: a number for a name": {"notifiers": {5: print}},
    "notifiers: asynchronous": {"notifiers": {"mail": later}},
    "by: a number": {"by": 5},
    "by: nobody": {"by": " \n"},
    "settings: a number": {"settings": 5},
    "leave_missing: a text": {"leave_missing": "no"},
}


@pytest.mark.parametrize("given", DAEMON.values(), ids=DAEMON.keys())
def test_a_daemon(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RecoveryDaemon(tmp_path / "log", **given)


CALLS: dict[str, Callable[[RecoveryDaemon], object]] = {
    "watch": lambda daemon: daemon.watch(0.1, after=5),  # type: ignore[arg-type]
    "watch, asynchronous": lambda daemon: daemon.watch(0.1, after=later),
    "undo": lambda daemon: daemon.undo(5, by="ann", reason="x"),  # type: ignore[arg-type]
    "undo by": lambda daemon: daemon.undo("s", by=5, reason="x"),  # type: ignore[arg-type]
    "undo why": lambda daemon: daemon.undo("s", by="ann", reason=5),  # type: ignore[arg-type]
    "undo to": lambda daemon: daemon.undo("s", by="ann", reason="x", to=5),  # type: ignore[arg-type]
    "undo the rest": lambda daemon: daemon.undo(
        "s",
        by="ann",
        reason="x",
        leave_the_rest="no",  # type: ignore[arg-type]
    ),
    "check": lambda daemon: daemon.check_undo(None),  # type: ignore[arg-type]
    "plan": lambda daemon: daemon.plan(b"s"),  # type: ignore[arg-type]
    "plan to": lambda daemon: daemon.plan("s", to=5),  # type: ignore[arg-type]
    "retry": lambda daemon: daemon.retry(5, by="ann"),  # type: ignore[arg-type]
    "close": lambda daemon: daemon.close_case(5, by="ann", reason="x"),  # type: ignore[arg-type]
    "close why": lambda daemon: daemon.close_case("s", by="ann", reason=None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_call_of_a_daemon(tmp_path: Path, call: Callable[[RecoveryDaemon], object]) -> None:
    daemon = RecoveryDaemon(tmp_path / "log")
    with pytest.raises(AgentSagaError):
        call(daemon)
    daemon.close()


LOGS: dict[str, Callable[[Path], object]] = {
    "port": lambda path: FileWAL(path, port=5),  # type: ignore[arg-type]
    "path: a number": lambda path: FileWAL(5),  # type: ignore[arg-type]
    "path: empty": lambda path: FileWAL(""),
    "path: bytes": lambda path: FileWAL(b"log"),  # type: ignore[arg-type]
    "path: NUL": lambda path: FileWAL("a\0b"),
    "policy": lambda path: FileWAL(path, policy="drop"),
    "stall_after": lambda path: FileWAL(path, stall_after="x"),
    "max_unsynced": lambda path: FileWAL(path, max_unsynced=0),
    "mark_after": lambda path: FileWAL(path, mark_after=float("nan")),
}


@pytest.mark.parametrize("make", LOGS.values(), ids=LOGS.keys())
def test_a_log(tmp_path: Path, make: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigurationError):
        make(tmp_path / "log")


@pytest.mark.parametrize("loggers", [5, None, "agent_saga", [5], b"agent_saga", [None]])
def test_names_of_loggers(loggers: Any) -> None:
    with pytest.raises(ConfigurationError):
        configure_logging(loggers=loggers)
    assert not logging.getLogger("a").handlers, "the letters of a text are no loggers"


@pytest.mark.parametrize("stream", [5, "stderr"])
def test_where_log_lines_go(stream: Any) -> None:
    with pytest.raises(ConfigurationError):
        configure_logging(stream=stream)


@pytest.mark.parametrize("wal", ["", "file:", b"log", 5])
def test_the_log_of_a_daemon(wal: Any) -> None:
    with pytest.raises(ConfigurationError):
        RecoveryDaemon(wal)


LIFESPANS: dict[str, dict[str, Any]] = {
    "a text for names": {"imports": "json"},
    "settings": {"settings": 5},
    "no log": {"wal": ""},
}


@pytest.mark.anyio
@pytest.mark.parametrize("given", LIFESPANS.values(), ids=LIFESPANS.keys())
async def test_a_lifespan(tmp_path: Path, given: dict[str, Any], anyio_backend: str) -> None:
    application = saga_lifespan(**{"wal": tmp_path / "log", **given})
    with pytest.raises(ConfigurationError):
        async with application(object()):
            pass


def test_the_settings_of_a_kit() -> None:
    with pytest.raises(ConfigurationError, match="settings="):
        AgentKit(settings={"settle": 5})  # type: ignore[arg-type]
