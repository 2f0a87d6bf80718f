"""The parts that the engine runs on, put together by `runtime`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agent_saga.controls.control import Use
    from agent_saga.controls.gate import Gate
    from agent_saga.domain.clock import Clock
    from agent_saga.engine.pool import ToolPool
    from agent_saga.engine.timing import Timing
    from agent_saga.observe.metrics import Metrics
    from agent_saga.plugins.registry import Handlers
    from agent_saga.wal.base import BaseWAL


class Claims(Protocol):
    """Stores how sagas of this process were left; see `engine.known`."""

    def ended(self, saga: str, epoch: int, seq: int, *, settled: bool) -> Use:
        """Return the use of the store that tells that a saga has ended."""

    def empty(self, saga: str, epoch: int) -> Use:
        """Return the use of the store that tells that nothing of a saga was recorded."""

    def suspended(self, saga: str, epoch: int, seq: int, deadline: int) -> Use:
        """Return the use of the store that tells that a saga is suspended."""


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
        claims: stores how sagas were left; None where nobody could take them over.
    """

    __slots__ = ("claims", "clock", "gate", "handlers", "metrics", "pool", "timing", "wal")

    def __init__(
        self,
        wal: BaseWAL,
        gate: Gate,
        handlers: Handlers,
        pool: ToolPool,
        timing: Timing,
        metrics: Metrics,
        clock: Clock,
        claims: Claims | None = None,
    ) -> None:
        self.claims = claims
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
            self.wal,
            self.gate,
            self.handlers,
            self.pool,
            timing,
            self.metrics,
            self.clock,
            self.claims,
        )
