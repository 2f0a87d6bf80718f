"""A gap: one line in the place of records that compaction took out of a segment.

Rules of this part:

- It names the first and the last sequence that left, the hash of the last one, to which the next
  record is chained, and a digest of all of them; so the chain goes on across it.
- What left had been durable: a gap says so as a watermark does.
- A gap says nothing about itself. The digest of a file's gaps stands in a COMPACTED record, in the
  chain of whoever compacted; `verify` compares the two.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NamedTuple

from agent_saga.domain.records import FORMAT
from agent_saga.wal.format import hash_bytes

__all__ = ["GAP", "Gap", "GrowingGap", "digest_of", "gap_line", "gap_of"]

GAP: Final = b"GAP"
"""What takes the place of the event when a gap is handed on by a scan."""

_FORM: Final = re.compile(
    rb'\{"v":(\d{1,9}),"q":([1-9]\d{0,18}),"to":([1-9]\d{0,18}),"y":"([\w-]{43})","h":"([\w-]{43})"\}\Z'
).match
_LINE: Final = b'{"v":' + str(FORMAT).encode() + b',"q":%d,"to":%d,"y":"%b","h":"%b"}'
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


class Gap(NamedTuple):
    """Records that left.

    Args:
        first: the first sequence.
        last: the last sequence.
        digest: of the hashes of all of them, as it stands in the line.
        hash: that of the last one, as it stands in the line.
    """

    first: int
    last: int
    digest: bytes
    hash: bytes


class GrowingGap:
    """A gap that grows while records, or older gaps, are taken out one after the other."""

    __slots__ = ("_digest", "first", "hash", "last")

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first - 1
        self.hash = b""
        self._digest = sha256()

    def add(self, last: int, told: bytes, own: bytes) -> None:
        """Take out what goes up to a sequence.

        Args:
            last: the sequence.
            told: the hash or digest, as it stands in the line, that tells what is taken out.
            own: the hash of the last record, as it stands in the line.

        Raises:
            ValueError: one of them is none.
        """
        self._digest.update(hash_bytes(told))
        hash_bytes(own)
        self.last, self.hash = last, own

    def line(self) -> bytes:
        """The gap as a line, without its line break."""
        digest = _text(self._digest.digest())
        return gap_line(Gap(self.first, self.last, digest, self.hash))


def gap_line(gap: Gap) -> bytes:
    """A gap as a line, without its line break."""
    return _LINE % gap


def gap_of(line: bytes) -> Gap | None:
    """Read a gap; None when the line is none."""
    found = _FORM(line)
    if found is None or int(found[1]) != FORMAT:
        return None
    gap = Gap(int(found[2]), int(found[3]), found[4], found[5])
    try:
        hash_bytes(gap.digest)
        hash_bytes(gap.hash)
    except ValueError:
        return None
    return gap if gap.last >= gap.first else None


def digest_of(writer: str, gaps: Iterable[bytes]) -> str:
    """The digest of the gaps of one file, which its attestation holds.

    Args:
        writer: whose file it is.
        gaps: the lines, in order.
    """
    digest = sha256(writer.encode("ascii", "replace"))
    for line in gaps:
        digest.update(b"\n" + line)
    return _text(digest.digest()).decode("ascii")


def _text(digest: bytes) -> bytes:
    return b2a_base64(digest, newline=False).translate(_TO_URL, b"=")
