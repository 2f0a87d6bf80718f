"""Whether an event loop is running on this thread, and what must not block it."""

from __future__ import annotations

import asyncio

from agent_saga.errors import ConfigurationError


def loop_is_running() -> bool:
    """Say whether an event loop is running on this thread."""
    return asyncio._get_running_loop() is not None  # noqa: SLF001 - the documented way, and cheap


def refuse_blocking() -> None:
    """Refuse a synchronous boundary where an event loop is running on this thread.

    Raises:
        ConfigurationError: it would block that loop.
    """
    if loop_is_running():
        raise ConfigurationError(
            "A synchronous boundary would block the event loop that is running here.",
            fix="Use `async with`.",
        )
