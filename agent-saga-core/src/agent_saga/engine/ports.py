"""The parts that the engine runs on, put together by `runtime`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_saga.controls.gate import Gate
    from agent_saga.domain.clock import Clock
    from agent_saga.engine.pool import ToolPool
    from agent_saga.engine.timing import Timing
    from agent_saga.observe.metrics import Metrics
    from agent_saga.plugins.registry import Handlers
    from agent_saga.wal.base import BaseWAL


class Engine:
    """The parts of one engine.

    Attributes:
        wal: the write-ahead log.
        gate: judges calls before their effect.
        handlers: the registered inverses, probers and reconcilers.
        pool: threads for synchronous tools.
        timing: bounds and waits, in seconds.
        metrics: counters.
        clock: where time is read.
    """

    __slots__ = ("clock", "gate", "handlers", "metrics", "pool", "timing", "wal")

    def __init__(
        self,
        wal: BaseWAL,
        gate: Gate,
        handlers: Handlers,
        pool: ToolPool,
        timing: Timing,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.wal = wal
        self.gate = gate
        self.handlers = handlers
        self.pool = pool
        self.timing = timing
        self.metrics = metrics
        self.clock = clock

    def with_timing(self, timing: Timing) -> Engine:
        """Return the same parts with other bounds."""
        return Engine(
            self.wal, self.gate, self.handlers, self.pool, timing, self.metrics, self.clock
        )
