"""What a section of `agent-saga status` gets and gives."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.lifecycle import SagaState
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.reader import writers_of
from agent_saga.wal.takeover import dead_writers

if TYPE_CHECKING:
    from agent_saga.cli.reading import LogView
    from agent_saga.domain.views import SagaView

__all__ = ["Scene", "Section", "ago"]

OWNED = frozenset({SagaState.RUNNING, SagaState.UNWINDING})


class Section:
    """What was seen of one thing.

    Args:
        lines: for people; every foreign part of them went through `printable`.
        facts: the same as plain data.
        attention: somebody has to look at it.
    """

    __slots__ = ("attention", "facts", "lines")

    def __init__(self, lines: list[str], facts: dict[str, Any], *, attention: bool = False) -> None:
        self.lines = lines
        self.facts = facts
        self.attention = attention


class Scene:
    """What the sections look at, each part of it read once.

    Attributes:
        log: the log, read.
        now: the wall clock, in microseconds since the epoch.
    """

    def __init__(self, log: LogView) -> None:
        self.log = log
        self.now = SYSTEM_CLOCK.now_us()

    @cached_property
    def writers(self) -> list[str]:
        """The ids of all writers."""
        return writers_of(str(self.log.path), OsPort())

    @cached_property
    def dead(self) -> frozenset[str]:
        """The ids of the writers that are proved dead."""
        return dead_writers(str(self.log.path))

    @cached_property
    def crashed(self) -> list[SagaView]:
        """The sagas that a dead process left open, or a living one gave up."""
        return [saga for saga in self.log.sagas.values() if self._is_crashed(saga)]

    def _is_crashed(self, saga: SagaView) -> bool:
        if saga.state is SagaState.RELEASED:
            return True
        return saga.state in OWNED and saga.owners.get(max(saga.owners)) in self.dead

    @cached_property
    def live(self) -> list[SagaView]:
        """The sagas that are open in a process of which nobody proved that it is dead."""
        crashed = {saga.id for saga in self.crashed}
        sagas = self.log.sagas.values()
        return [saga for saga in sagas if saga.state in OWNED and saga.id not in crashed]


def ago(seconds: float) -> str:
    """Return a span of time as people say it."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{max(int(seconds), 0)} s"
