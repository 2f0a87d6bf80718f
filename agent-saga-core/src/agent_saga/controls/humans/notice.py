"""What people are told of a request, whichever way they are told."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from agent_saga.state.document import Doc

__all__ = ["Notice", "Notifier", "plain"]


class Notice:
    """A request as people are told of it.

    Attributes:
        id, saga, tool, rule, reason: what is asked, and why.
        arguments: the call's arguments as JSON, secrets masked; long ones are cut.
        requesters: who asks.
        deadline: until when it can be answered, in microseconds since the epoch.
        level: the escalation level, from 0.
        targets: whom to tell, as the policy names them.
        place: what a command needs to find the log, or an empty string.
    """

    __slots__ = (
        "arguments",
        "deadline",
        "id",
        "level",
        "place",
        "reason",
        "requesters",
        "rule",
        "saga",
        "targets",
        "tool",
    )

    def __init__(self, doc: Doc, level: int, targets: tuple[str, ...], place: str = "") -> None:
        self.id: str = doc["id"]
        self.saga: str = doc["saga"]
        self.tool: str = doc["tool"]
        self.rule: str = doc["rule"]
        self.reason: str = doc["reason"]
        self.arguments: str = doc["arguments"]
        self.requesters: tuple[str, ...] = tuple(doc["requesters"])
        self.deadline: int = doc["deadline"]
        self.level = level
        self.targets = targets
        self.place = place

    @property
    def until(self) -> str:
        """The deadline as text, in UTC."""
        return f"{datetime.fromtimestamp(self.deadline / 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"

    def command(self, decision: str) -> str:
        """Return the command that decides it.

        Args:
            decision: "approve" or "deny".
        """
        return f"agent-saga approvals {decision} {self.id} --approver NAME{self.place}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "id": self.id,
            "saga": self.saga,
            "tool": self.tool,
            "rule": self.rule,
            "reason": self.reason,
            "arguments": plain(self.arguments),
            "requesters": list(self.requesters),
            "deadline": self.until,
            "level": self.level,
            "targets": list(self.targets),
            "approve": self.command("approve"),
            "deny": self.command("deny"),
        }


class Notifier(Protocol):
    """Whoever can tell people of a request."""

    def notify(self, notice: Notice) -> Awaitable[object] | None:
        """Tell people; may be asynchronous. What it raises counts as not told."""


def plain(text: str) -> Any:
    """Return the arguments that a text shows; the text itself if it was cut, or is another's."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
