"""One record as one line: how it is stamped, hashed and read.

Rules of this part:

- A line is a JSON object whose fields stand in a fixed order: the envelope (`v` format, `q`
  sequence, `m` watermark, `t` time, `e` event, `s` saga, `p` epoch, `k` step, `g` generation),
  the payload `d`, the salt `x` and the hash `h`. Recovery slices the envelope and never parses a
  payload.
- hash = SHA-256(previous hash | envelope bytes | SHA-256(salt | payload bytes)), all over the
  bytes as stored. The first previous hash is SHA-256 of the writer's id. The digest and the
  previous hash can be derived, so they are not stored.
- An erased record has the digest `y` in place of payload and salt; envelope and chain still
  verify.
- The watermark is the highest sequence that was known durable when the line was stamped.
- A line holds no zero byte and no line break but its last: both tell damage.
"""

from __future__ import annotations

import json
import os
import re
from binascii import a2b_base64, b2a_base64
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from agent_saga.domain.records import FORMAT
from agent_saga.wal.encoding import Fragment, decode, quoted

__all__ = [
    "Chain",
    "Entry",
    "Record",
    "first_hash",
    "format_of",
    "hash_bytes",
    "hash_of",
    "parsed",
    "size_of",
    "stamped",
]

_OVERHEAD: Final = 190
_SALT: Final = 16
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_QUOTED_MAX: Final = 4096
_quoted: dict[str, bytes] = {}
_decode_text: Final = msgspec.json.Decoder(str).decode

_TEXT: Final = rb'"((?:[^"\\\x00-\x1f]|\\.)*)"'
_ENVELOPE: Final = re.compile(
    rb'\{"v":(\d{1,9}),"q":(\d{1,19}),"m":(\d{1,19}),"t":(\d{1,19}),"e":'
    + _TEXT + rb',"s":' + _TEXT + rb',"p":(\d{1,19}),"k":' + _TEXT
    + rb',"g":(\d{1,19}),(?="d":|"y":")'
)  # fmt: skip
_FORMAT: Final = re.compile(rb'\{"v":(\d{1,9}),')
_TAIL: Final = re.compile(rb',"x":"([\w-]{22})","h":"([\w-]{43})"\}\Z')
_ERASED: Final = re.compile(rb'"y":"([\w-]{43})","h":"([\w-]{43})"\}\Z')
_TAIL_SIZE: Final = len(b',"x":"","h":""}') + 22 + 43


Entry = tuple[int, str, str, int, str, int, Fragment]
"""A record that waits to be stamped: time, event, saga, epoch, step, generation, payload."""


class Chain(NamedTuple):
    """Where a writer's chain stands: the last sequence and its hash."""

    seq: int
    hash: bytes


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record as it was read.

    `payload` is the encoded value (None when it was erased); `data` decodes it. `epoch`,
    `generation` and `seq` are counts; `time` is in microseconds since 1970 and for display only.
    """

    fmt: int
    seq: int
    mark: int
    time: int
    event: str
    saga: str
    epoch: int
    step: str
    generation: int
    payload: bytes | None
    hash: bytes
    writer: str = ""

    @property
    def data(self) -> Any:
        """The payload as plain data; None when it was erased.

        Raises:
            WALCorrupt: the payload is not readable.
        """
        return None if self.payload is None else decode(self.payload)

    @property
    def erased(self) -> bool:
        """Whether payload and salt were erased on purpose."""
        return self.payload is None


def first_hash(writer: str) -> bytes:
    """What the first record of a writer is chained to."""
    return sha256(writer.encode("utf-8", "surrogatepass")).digest()


def size_of(entry: Entry) -> int:
    """About how many bytes the line of an entry takes: enough to plan with, not a bound."""
    _, event, saga, _, step, _, payload = entry
    return _OVERHEAD + len(payload) + len(event) + len(saga) + len(step)


def stamped(entries: list[Entry], chain: Chain, mark: int) -> tuple[list[bytes], Chain]:
    """Give entries their sequence, watermark, salt and hash.

    Args:
        entries: what was appended, in order.
        chain: where the writer's chain stands.
        mark: the highest sequence known durable now.

    Returns:
        One line per entry, and where the chain stands behind them. The input is not changed, so a
        stamping that was interrupted can be done again.
    """
    seq, previous = chain
    lines = []
    salts = os.urandom(_SALT * len(entries))
    for at, (time, event, saga, epoch, step, generation, payload) in enumerate(entries):
        seq += 1
        envelope = b'{"v":%d,"q":%d,"m":%d,"t":%d,"e":%b,"s":%b,"p":%d,"k":%b,"g":%d,' % (
            FORMAT, seq, mark, time, _text(event), _text(saga), epoch, _text(step), generation,
        )  # fmt: skip
        salt = salts[at * _SALT : at * _SALT + _SALT]
        digest = sha256(salt + payload).digest()
        previous = sha256(previous + envelope + digest).digest()
        lines.append(
            b'%b"d":%b,"x":"%b","h":"%b"}\n' % (envelope, payload, _b64(salt), _b64(previous))
        )
    return lines, Chain(seq, previous)


def format_of(line: bytes) -> int | None:
    """The format version that a line says it has, or None when it is no record at all."""
    found = _FORMAT.match(line)
    return None if found is None else int(found[1])


def parsed(line: bytes, writer: str = "") -> Record | None:
    """Read a line (without its line break); None when it is not a whole record of our format."""
    head = _ENVELOPE.match(line)
    if head is None or b"\0" in line:
        return None
    tail = _TAIL.match(line, max(head.end(), len(line) - _TAIL_SIZE))
    payload: bytes | None = None
    if tail is not None:
        payload = line[head.end() + 4 : tail.start()]
        if not payload or line[head.end() : head.end() + 4] != b'"d":':
            return None
    else:
        tail = _ERASED.match(line, head.end())
        if tail is None:
            return None
    return _record(head, payload, tail[2], writer)


def _record(
    head: re.Match[bytes], payload: bytes | None, text: bytes, writer: str
) -> Record | None:
    fmt, seq, mark, time, event, saga, epoch, step, generation = head.groups()
    if int(fmt) != FORMAT or int(mark) >= int(seq):
        return None
    try:
        return Record(
            int(fmt), int(seq), int(mark), int(time), _from_text(event), _from_text(saga),
            int(epoch), _from_text(step), int(generation), payload, text, writer,
        )  # fmt: skip
    except ValueError:
        return None


def hash_of(line: bytes, previous: bytes) -> bytes | None:
    """The hash that a line should carry after `previous`, or None when it is no record."""
    head = _ENVELOPE.match(line)
    if head is None:
        return None
    tail = _TAIL.match(line, max(head.end(), len(line) - _TAIL_SIZE))
    if tail is not None:
        digest = sha256(_unb64(tail[1]) + line[head.end() + 4 : tail.start()]).digest()
    else:
        erased = _ERASED.match(line, head.end())
        if erased is None:
            return None
        digest = _unb64(erased[1])
    return sha256(previous + head[0] + digest).digest()


def hash_bytes(text: bytes) -> bytes:
    """The 32 bytes of a hash as it stands in a line."""
    return _unb64(text)


def _text(text: str) -> bytes:
    found = _quoted.get(text)
    if found is None:
        found = quoted(text)
        if len(_quoted) >= _QUOTED_MAX:
            _quoted.clear()
        _quoted[text] = found
    return found


def _from_text(raw: bytes) -> str:
    if b"\\" in raw:
        return str(_json_text(b'"' + raw + b'"'))
    return raw.decode("utf-8")


def _json_text(raw: bytes) -> Any:
    try:
        return _decode_text(raw)
    except msgspec.DecodeError:  # lone surrogates, which only the standard library's reader takes
        return json.loads(raw)


def _b64(data: bytes) -> bytes:
    return b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URL)


def _unb64(text: bytes) -> bytes:
    return a2b_base64(text.translate(_FROM_URL) + b"=" * (-len(text) % 4))
