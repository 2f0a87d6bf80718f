"""What cannot be read as it was written: where it stands, and whether it had been durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_saga.wal.format import Record

__all__ = ["Damage", "broken", "unreadable"]


class Damage(msgspec.Struct, frozen=True):
    """A place in the log that cannot be read as it was written.

    `kind` is "damage" (it had been durable), "torn-tail" (it had not been confirmed to anybody; a
    writer that is still writing shows one too), or "format" (another version wrote it). `seq` is
    the first sequence that is missing, `offset` counts bytes in the segment.
    """

    writer: str
    segment: str
    seq: int
    offset: int
    reason: str
    kind: str = "damage"


def broken(damages: Iterable[Record | Damage]) -> list[Damage]:
    """Those of them that had been durable, or that another version wrote: no torn tails."""
    return [one for one in damages if isinstance(one, Damage) and one.kind != "torn-tail"]


def unreadable(writer: str, error: OSError) -> Damage:
    """The damage of a folder that cannot be read."""
    return Damage(writer, "", 1, 0, f"the writer's folder cannot be read ({error})")
