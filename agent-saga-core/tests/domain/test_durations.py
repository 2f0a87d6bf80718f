"""Spans of time are checked where they are given, by one rule, and shown shortened."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from agent_saga import (
    AgentKit,
    FileWAL,
    RecoveryDaemon,
    RetryPolicy,
    SagaAborted,
    Settings,
    compensator,
    saga_lifespan,
)
from agent_saga.cli import recoveryd
from agent_saga.domain.durations import CENTURY, YEAR, seconds
from agent_saga.errors import ConfigurationError
from agent_saga.plugins.registry import process_handlers

ODD = [10**400, 10**5000, 1e300, 1e30, math.inf, -math.inf, math.nan, -1, "7", None, True, [1]]
Give = Callable[[Any, Path], object]


def suspended(value: Any, path: Path) -> object:
    with AgentKit("k", wal=str(path / "log")).transaction(saga_id="x") as saga:
        return saga.suspend("wait", deadline=value)


def tool(**options: Any) -> object:
    return AgentKit("k").safe_tool(print, name="p", semantics="REVERSIBLE", **options)


def with_window(value: Any) -> object:
    with process_handlers().isolated():
        return compensator("windowed", idempotent=True, window=value)(lambda: None)


async def started(value: Any, path: Path, name: str) -> None:
    async with saga_lifespan(str(path / "log"), **{name: value})(None):
        """Nothing."""


GIVEN: dict[str, Give] = {
    "the deadline of a suspension": suspended,
    "timeout= of a tool": lambda value, path: tool(timeout=value),
    "undo_timeout= of a tool": lambda value, path: tool(undo_timeout=value),
    "settle_after= of a tool": lambda value, path: tool(settle_after=value),
    "window= of a tool": lambda value, path: tool(idempotent=True, window=value),
    "the window of a handler": lambda value, path: with_window(value),
    "base_delay= of a retry": lambda value, path: RetryPolicy(base_delay=value),
    "max_delay= of a retry": lambda value, path: RetryPolicy(max_delay=value),
    "resume_grace= of a boundary": lambda value, path: AgentKit(
        "k", wal=str(path / "log")
    ).transaction(on_crash="hold", resume_grace=value),
    "a setting": lambda value, path: Settings(settle=value),
    "the grace of a compaction": lambda value, path: FileWAL(path / "log").compact(
        grace_seconds=value
    ),
    "the interval of a watch": lambda value, path: RecoveryDaemon(path / "log").watch(value),
}
NONE_IS_THE_DEFAULT = frozenset(GIVEN) - {
    "the deadline of a suspension", "the interval of a watch", "a setting",
    "base_delay= of a retry", "max_delay= of a retry",
}  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("what", GIVEN)
def test_what_is_no_span_of_time_is_refused_in_a_few_words(
    tmp_path: Path, what: str, value: Any
) -> None:
    if what == "the deadline of a suspension" and value in ODD[:4]:
        return  # it never comes
    if value is None and what in NONE_IS_THE_DEFAULT:
        return
    if what == "a setting" and value == "7":
        return  # settings are read from texts
    with pytest.raises((ConfigurationError, SagaAborted)) as refused:
        GIVEN[what](value, tmp_path)
    error = refused.value.cause if isinstance(refused.value, SagaAborted) else refused.value
    assert isinstance(error, ConfigurationError)
    assert len(str(error)) < 400, "never hundreds of digits"


@pytest.mark.parametrize("name", ["interval", "grace"])
def test_a_lifespan_does_not_start_with_what_is_no_span(tmp_path: Path, name: str) -> None:
    for value in ODD:
        with pytest.raises(ConfigurationError):
            asyncio.run(started(value, tmp_path, name))


@pytest.mark.parametrize("option", ["--interval", "--compact-every"])
@pytest.mark.parametrize("value", ["1e400", "1e300", "inf", "nan", "-1", "x"])
def test_the_daemon_refuses_them_on_its_command_line(
    tmp_path: Path, option: str, value: str
) -> None:
    words = ["--wal-path", str(tmp_path / "log"), option, value]
    with pytest.raises((click.BadParameter, ConfigurationError)):
        recoveryd.program.main(words, standalone_mode=False)


def test_what_is_one_is_taken_as_it_is() -> None:
    assert seconds("x", 5) == 5.0
    assert seconds("x", 0, zero=True) == 0.0
    assert seconds("x", YEAR) == YEAR
    with pytest.raises(ConfigurationError, match="above zero, up to 31622400, not 0"):
        seconds("x", 0)


def test_the_longest_deadline_is_told_by_a_clock(tmp_path: Path) -> None:
    from agent_saga import SagaSuspended
    from agent_saga.cli.main import main

    log = tmp_path / "log"
    kit = AgentKit("k", wal=str(log))
    with pytest.raises(SagaSuspended), kit.transaction(saga_id="x") as saga:
        saga.suspend("wait", deadline=CENTURY)
    assert main(["status", "--wal-path", str(log)]) == 0
    assert main(["show", "x", "--wal-path", str(log)]) == 1
