"""Getting a saga by its id beside the event loop: asking the store and the log blocks.

A cancelled caller does not wait, and the thread cannot be stopped. A saga that it takes over after
that is released at once: else it would belong to a living process in which nobody acts on it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.ports import Engine
from agent_saga.engine.releasing import release
from agent_saga.engine.saga import Saga

Origin = Callable[[Engine, BoundaryOptions], Saga]


class Taking:
    """One saga on its way.

    Args:
        origin: where it comes from; blocks.
        engine, options: what `origin` is called with.
    """

    def __init__(self, origin: Origin, engine: Engine, options: BoundaryOptions) -> None:
        self._origin = origin
        self._engine = engine
        self._options = options
        self._lock = threading.Lock()
        self._saga: Saga | None = None
        self._given_up = False

    async def taken(self) -> Saga:
        """Return the saga; when this is cut short, the saga is released as soon as it is there."""
        try:
            return await asyncio.to_thread(self._take)
        except BaseException:
            self._give_up()
            raise

    def _take(self) -> Saga:
        saga = self._origin(self._engine, self._options)
        with self._lock:
            self._saga = saga
            wanted = not self._given_up
        if not wanted:
            _let_go(saga)
        return saga

    def _give_up(self) -> None:
        with self._lock:
            self._given_up = True
            saga = self._saga
        if saga is not None:
            _let_go(saga)


def _let_go(saga: Saga) -> None:
    if not saga.read_only:
        release(saga.root, "its boundary was never entered")
