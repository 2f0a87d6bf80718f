"""The lifespan of an ASGI application (FastAPI, Starlette): the log, and recovery beside it.

Rules of this part:

- On start the log becomes the default one of the process, and a recovery daemon watches it on a
  thread of its own. Several workers may share one path: each has its own writer, and a daemon
  never touches the sagas of a process that lives.
- On shutdown the daemon stops, open sagas are given a bounded time to end and undo themselves, and
  the log is closed. What does not end in time is left in the log; a later process recovers it.
- Applications in one process may overlap, as those do that are mounted in another one. The default
  log is that of the last one to start that still runs, then what it was before the first; a log is
  closed with the last application that runs on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from agent_saga.domain.durations import seconds
from agent_saga.engine.active import active
from agent_saga.errors import ConfigurationError
from agent_saga.observe.logger import logger
from agent_saga.plugins.importing import import_modules
from agent_saga.runtime.daemon import RecoveryDaemon
from agent_saga.runtime.logs import chosen_wal, set_default_wal, wal_at
from agent_saga.runtime.settings import Settings
from agent_saga.wal.base import BaseWAL

log = logger("agent_saga.asgi")

GRACE: Final = 25.0
"""Seconds that open sagas are given at shutdown."""

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def saga_lifespan(
    wal: BaseWAL | str | os.PathLike[str],
    *,
    interval: float = 5.0,
    grace: float = GRACE,
    imports: Sequence[str] = (),
    settings: Settings | None = None,
) -> Lifespan:
    """Return a lifespan for `FastAPI(lifespan=…)`.

    Args:
        wal: the log, its path or its address; it becomes the default log while the application
            runs.
        interval: seconds between two looks at the log.
        grace: seconds that open sagas are given at shutdown.
        imports: modules that register the handlers that recovery needs.
        settings: how recovery runs; read from the environment when not given.

    Raises:
        ConfigurationError: when the application starts, if the log is not one in files, or is an
            object that was closed.
        PluginError: when the application starts, if a module cannot be loaded.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        """Open the log, recover while the application runs, and close at its end."""
        del app
        seconds("interval=", interval, zero=True)
        seconds("grace=", grace, zero=True)
        opened = wal_at(wal, settings)
        if opened.closed:
            raise ConfigurationError(
                f"The log {opened.address} was closed, perhaps when an application ended that ran "
                "on it.",
                fix="Give saga_lifespan the path of the log; it opens the log at each start.",
            )
        import_modules(imports)
        daemon = RecoveryDaemon(opened, settings=settings, by=f"lifespan of {os.getpid()}")
        _running.begin(opened)
        watching = threading.Thread(
            target=daemon.watch, args=(interval,), name="agent-saga-recovery", daemon=True
        )
        watching.start()
        try:
            yield
        finally:
            _running.end(opened)
            await _shut_down(daemon, watching, opened, grace)

    return lifespan


class _Running:
    """The logs of the applications that run in this process, in the order of their starts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: list[BaseWAL] = []
        self._before: BaseWAL | None = None

    def begin(self, wal: BaseWAL) -> None:
        """Make a log the default one for an application that starts."""
        with self._lock:
            if not self._logs:
                self._before = chosen_wal()
            self._logs.append(wal)
            set_default_wal(wal)

    def end(self, wal: BaseWAL) -> None:
        """Give the default back."""
        with self._lock:
            self._logs.remove(wal)
            if chosen_wal() is wal:
                before = self._before
                usual = None if before is None or before.closed else before
                set_default_wal(self._logs[-1] if self._logs else usual)

    def uses(self, wal: BaseWAL) -> bool:
        """Say whether an application runs on a log."""
        with self._lock:
            return wal in self._logs


_running: Final = _Running()


async def _shut_down(
    daemon: RecoveryDaemon, watching: threading.Thread, wal: BaseWAL, grace: float
) -> None:
    daemon.stop()
    left = 0 if _running.uses(wal) else await _ended(wal, grace)
    if left:
        log.error(
            "%s not ended after %.0f s, left to recovery: %s",
            "1 saga had" if left == 1 else f"{left} sagas had",
            grace,
            wal.address,
        )
    await asyncio.to_thread(watching.join, grace)
    daemon.close()
    if not _running.uses(wal):
        await wal.aclose()


async def _ended(wal: BaseWAL, grace: float) -> int:
    """Wait until the sagas on this log have ended; return how many have not."""
    loop = asyncio.get_running_loop()
    end = loop.time() + grace
    while True:
        left = sum(saga.engine.wal is wal for saga in active())
        if not left or loop.time() >= end:
            return left
        await asyncio.sleep(0.02)
