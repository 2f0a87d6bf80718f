"""What a section of `agent-saga status` gets and gives."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent_saga.cli.owners import ALIVE, DEAD, UNTOLD, Owners
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.lifecycle import SagaState

if TYPE_CHECKING:
    from agent_saga.cli.reading import LogView
    from agent_saga.domain.views import SagaView

__all__ = ["Scene", "Section", "ago"]


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
    def owners(self) -> Owners:
        """Who has the open sagas."""
        return Owners(self.log.path)

    @cached_property
    def crashed(self) -> list[SagaView]:
        """The sagas that a dead process left open, or a living one gave up."""
        sagas = self.log.sagas.values()
        return [s for s in sagas if s.state is SagaState.RELEASED or self.owners.of(s) == DEAD]

    @cached_property
    def live(self) -> list[SagaView]:
        """The sagas that are open in a process that lives."""
        return [saga for saga in self.log.sagas.values() if self.owners.of(saga) == ALIVE]

    @cached_property
    def untold(self) -> list[SagaView]:
        """The sagas that are open in a process of which nobody can tell whether it lives."""
        return [saga for saga in self.log.sagas.values() if self.owners.of(saga) == UNTOLD]


def ago(seconds: float) -> str:
    """Return a span of time as people say it."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{max(int(seconds), 0)} s"
