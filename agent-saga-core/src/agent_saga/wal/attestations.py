"""COMPACTED records: what left the log, told in the chain of whoever took it out.

Rules of this part:

- A record is durable before anything leaves, so nothing leaves unattested. If the compaction is not
  put in place after all, it tells of something that is still there, and does no harm.
- It holds a digest of the gaps of every new file, the writers that left as a whole with the end of
  their chains, and the ids of sagas that their users had named or somebody had claimed: such an id
  is never used again, and nobody takes the saga for lost.
- Long lists are spread over several records.
- These records never leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from agent_saga.domain.effective import facts_of
from agent_saga.wal.encoding import Fragment
from agent_saga.wal.format import Record
from agent_saga.wal.walk import encode_json

__all__ = ["Attestation", "attested_in", "names_in", "payloads", "writers_in"]

_MOST: Final = 4000
"""Entries in one record."""


class Attestation(Struct, frozen=True):
    """What one compaction takes out.

    Attributes:
        gaps: for each new file, its writer and the digest of its gaps.
        writers: the writers that leave, each with its last sequence and hash.
        names: the ids of the sagas that leave and that their users had named, or somebody claimed.
        sagas: the ids of all sagas that leave.
        records: how many records leave.
    """

    gaps: list[tuple[str, str]]
    writers: list[tuple[str, int, str]]
    names: list[str]
    sagas: list[str]
    records: int


def payloads(what: Attestation) -> Iterator[Fragment]:
    """Yield the payloads of the records that tell of a compaction."""
    digest = sha256("\n".join(sorted(what.sagas)).encode("utf-8", "surrogatepass")).hexdigest()
    whole = {"sagas": len(what.sagas), "records": what.records, "digest": digest}
    lists: dict[str, list[Any]] = {
        "gaps": [*what.gaps],
        "writers": [*what.writers],
        "names": what.names,
    }
    longest = max(len(entries) for entries in lists.values())
    for at in range(0, max(longest, 1), _MOST):
        parts = {name: entries[at : at + _MOST] for name, entries in lists.items()}
        # All of it is ids and digests of our own making; as they hold no secret, nothing is masked.
        yield Fragment(encode_json({**whole, **{n: part for n, part in parts.items() if part}}))


def names_in(record: Record) -> set[str]:
    """Return the named and claimed sagas that a COMPACTED record tells of."""
    return {name for name in _list(record, "names") if isinstance(name, str)}


def attested_in(record: Record) -> set[tuple[str, str]]:
    """Return the writers and digests of gaps that a COMPACTED record attests."""
    return {(one[0], one[1]) for one in _list(record, "gaps") if _is_row(one, str, str)}


def writers_in(record: Record) -> dict[str, int]:
    """Return the writers that left, each with its last sequence."""
    return {one[0]: one[1] for one in _list(record, "writers") if _is_row(one, str, int, str)}


def _list(record: Record, name: str) -> list[Any]:
    facts: Mapping[str, Any] = facts_of(record)
    found = facts.get(name)
    return found if isinstance(found, list) else []


def _is_row(one: object, *kinds: type) -> bool:
    return (
        isinstance(one, list)
        and len(one) == len(kinds)
        and all(type(value) is kind for value, kind in zip(one, kinds, strict=True))
    )
