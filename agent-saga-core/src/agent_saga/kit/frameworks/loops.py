"""A run that blocks its caller, by an event loop of its own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

from agent_saga.engine.boundary import last_reports
from agent_saga.engine.loops import loop_is_running
from agent_saga.errors import ConfigurationError

T = TypeVar("T")


def no_loop(name: str) -> None:
    """See that no event loop is running on this thread.

    Args:
        name: what the caller called, without its `_sync`.

    Raises:
        ConfigurationError: one is.
    """
    if loop_is_running():
        raise ConfigurationError(
            f"{name}_sync was called where an event loop is running.",
            fix=f"Use {name} and await it.",
        )


def blocking(name: str, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own; its last report is the caller's.

    Args:
        name: what the caller called, without its `_sync`.
        coroutine: what is run.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    try:
        no_loop(name)
    except ConfigurationError:
        coroutine.close()
        raise
    context = contextvars.copy_context()
    try:
        with asyncio.Runner() as runner:
            return runner.run(coroutine, context=context)
    finally:
        last_reports.set(context.get(last_reports))
