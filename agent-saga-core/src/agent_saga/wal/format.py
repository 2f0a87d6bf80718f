"""One record as one line: how it is stamped, hashed and read.

Rules of this part:

- A line is a JSON object whose fields stand in a fixed order: the envelope (`v` format, `q`
  sequence, `m` watermark, `t` time, `e` event, `s` saga, `p` epoch, `k` step, and `g` generation
  unless it is 0), the payload `d`, the salt `x` and the hash `h`. Recovery slices the envelope
  and never parses a payload.
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
import struct
from binascii import a2b_base64, b2a_base64
from hashlib import sha256
from typing import Any, Final

import msgspec

from agent_saga.domain.records import FORMAT
from agent_saga.wal.encoding import Fragment, decode

__all__ = [
    "LEAN",
    "Chain",
    "Entry",
    "Record",
    "Salts",
    "first_hash",
    "format_of",
    "hash_after",
    "hash_bytes",
    "line_of",
    "parsed",
    "stamped",
]

Entry = tuple[int, str, str, int, str, int, Fragment]
"""A record that waits to be stamped: time, event, saga, epoch, step, generation, payload."""

Chain = tuple[int, bytes]
"""Where a writer's chain stands: the last sequence and its hash."""

_SALT: Final = 16
_SALTS: Final = 64
_CUT: Final = struct.Struct(f"{_SALT}s" * _SALTS).unpack
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_LAST_OF_HASH: Final = frozenset(bytes([letter]) for letter in b"AEIMQUYcgkosw048")
_LAST_OF_SALT: Final = frozenset(bytes([letter]) for letter in b"AQgw")
_encode: Final = msgspec.json.Encoder().encode
_decode_text: Final = msgspec.json.Decoder(str).decode


def _envelope(text: bytes, fmt: bytes = rb"(\d{1,9})", other: bytes = rb"(") -> re.Pattern[bytes]:
    """The envelope's form, its ids being `text`; time, step and generation are groups as `other`.

    It groups format, sequence, watermark, time, event, saga, epoch, step and generation.
    """
    return re.compile(
        rb'\{"v":' + fmt + rb',"q":(\d{1,19}),"m":(\d{1,19}),"t":' + other
        + rb'\d{1,19}),"e":"([A-Z_]+)","s":"(' + text + rb')","p":(\d{1,19}),"k":"' + other + text
        + rb')",(?:"g":' + other + rb'[1-9]\d{0,18}),)?(?="d":|"y":")'
    )  # fmt: skip


_TEXT: Final = rb'[^"\\\x00-\x1f]*'
_PLAIN: Final = _envelope(_TEXT).match
LEAN: Final = _envelope(_TEXT, str(FORMAT).encode(), rb"(?:").match
"""Matches the envelope of a record of our format whose ids hold nothing that JSON escapes.

It groups sequence, watermark, event, saga and epoch.
"""

_ESCAPED: Final = _envelope(rb'(?:[^"\\\x00-\x1f]|\\.)*').match
_FORMAT: Final = re.compile(rb'\{"v":(\d{1,9}),').match
_ERASED: Final = re.compile(rb'"y":"([\w-]{43})","h":"([\w-]{43})"\}\Z').match
_SALT_AT: Final = -80
_HASH_AT: Final = -52
_HASH_KEY: Final = b'","h":"'


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record as it was read.

    `payload` is the encoded value (None when it was erased); `data` decodes it. `epoch`,
    `generation` and `seq` are counts; `time` is in microseconds since 1970 and for display only.
    `envelope`, `salt`, `digest` and `hash` are the bytes as they stand in the line; of `salt` and
    `digest` one is empty.
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
    envelope: bytes
    salt: bytes
    digest: bytes
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


class Salts:
    """Random salts, drawn many at a time: one call of the operating system serves 64 records."""

    __slots__ = ("ready",)

    def __init__(self) -> None:
        self.ready: list[tuple[bytes, bytes]] = []

    def drawn(self) -> list[tuple[bytes, bytes]]:
        """Draw salts, each with how it is written; who takes one takes it out of `ready`."""
        salts = _CUT(os.urandom(_SALT * _SALTS))
        lines = b"".join(map(b2a_base64, salts)).translate(_TO_URL, b"=")
        self.ready = list(zip(salts, lines.split(b"\n"), strict=False))
        return self.ready


def first_hash(writer: str) -> bytes:
    """What the first record of a writer is chained to."""
    return sha256(writer.encode("utf-8", "surrogatepass")).digest()


class _Envelope(msgspec.Struct, gc=False, omit_defaults=True):
    """The envelope's fields in their order; the generation stands there unless it is 0."""

    v: int
    q: int
    m: int
    t: int
    e: str
    s: str
    p: int
    k: str
    g: int = 0


def stamped(entry: Entry, chain: Chain, mark: int, salts: Salts) -> tuple[bytes, Chain]:
    """Give an entry its sequence, watermark, salt and hash.

    Args:
        entry: what was appended.
        chain: where the writer's chain stands.
        mark: the highest sequence known durable now.
        salts: where salts come from.

    Returns:
        The line, and where the chain stands behind it. The input is not changed, so a stamping that
        was interrupted can be done again.
    """
    seq = chain[0] + 1
    time, event, saga, epoch, step, generation, payload = entry
    fields = _Envelope(FORMAT, seq, mark, time, event, saga, epoch, step, generation)
    try:
        envelope = _encode(fields)[:-1] + b","
    except UnicodeEncodeError:
        envelope = _in_ascii(fields)[:-1] + b","
    salt, salt_text = (salts.ready or salts.drawn()).pop()
    link = sha256(chain[1] + envelope + sha256(salt + payload).digest()).digest()
    hash_text = b2a_base64(link, newline=False).translate(_TO_URL, b"=")
    line = b'%b"d":%b,"x":"%b","h":"%b"}\n' % (envelope, payload, salt_text, hash_text)
    return line, (seq, link)


def _in_ascii(envelope: _Envelope) -> bytes:
    """The envelope where an id holds what UTF-8 cannot carry."""
    names = [name for name in envelope.__struct_fields__ if name != "g" or envelope.g]
    fields = {name: getattr(envelope, name) for name in names}
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def format_of(line: bytes) -> int | None:
    """The format version that a line says it has, or None when it is no record at all."""
    found = _FORMAT(line)
    return None if found is None else int(found[1])


def parsed(line: bytes, writer: str = "") -> Record | None:
    """Read a line (without its line break); None when it is not a whole record of our format."""
    head = _PLAIN(line) or _ESCAPED(line)
    if head is None or b"\0" in line:
        return None
    at = head.end()
    payload: bytes | None
    if line[at : at + 4] == b'"d":':
        payload, salt, digest, stated = line[at + 4 : _SALT_AT], line[-74:-52], b"", line[-45:-2]
        whole = line[_SALT_AT:-74] == b',"x":"' and line[_HASH_AT:-45] == _HASH_KEY
        if not (payload and whole and line.endswith(b'"}')):
            return None
    else:
        found = _ERASED(line, at)
        if found is None:
            return None
        payload, salt, digest, stated = None, b"", found[1], found[2]
    fmt, seq, mark, time, event, saga, epoch, step, generation = head.groups()
    if int(fmt) != FORMAT or int(mark) >= int(seq):
        return None
    try:
        return Record(
            int(fmt), int(seq), int(mark), int(time), event.decode(), _from_text(saga), int(epoch),
            _from_text(step), int(generation or 0), payload, head[0], salt, digest, stated, writer,
        )  # fmt: skip
    except ValueError:
        return None


def line_of(record: Record) -> bytes:
    """The line of a record, byte for byte as it was read, without its line break."""
    if record.payload is None:
        return b'%b"y":"%b","h":"%b"}' % (record.envelope, record.digest, record.hash)
    return b'%b"d":%b,"x":"%b","h":"%b"}' % (
        record.envelope, record.payload, record.salt, record.hash,
    )  # fmt: skip


def hash_after(record: Record, previous: bytes) -> bytes:
    """The hash that a record must carry behind the record whose hash is `previous`.

    Returns:
        32 bytes; empty when the record's salt or digest is not readable.
    """
    try:
        if record.payload is None:
            digest = hash_bytes(record.digest)
        else:
            digest = sha256(hash_bytes(record.salt) + record.payload).digest()
    except ValueError:
        return b""
    return sha256(previous + record.envelope + digest).digest()


def hash_bytes(text: bytes) -> bytes:
    """The bytes of a hash, digest or salt as it stands in a line.

    Raises:
        ValueError: it is not written as this module writes it, to the last bit.
    """
    ends = _LAST_OF_HASH if len(text) == 43 else _LAST_OF_SALT
    if text[-1:] not in ends:
        raise ValueError(text)
    padded = text.translate(_FROM_URL) + b"=" * (-len(text) % 4)
    return a2b_base64(padded, strict_mode=True)


def _from_text(raw: bytes) -> str:
    if b"\\" in raw:
        return str(_json_text(b'"' + raw + b'"'))
    return raw.decode()


def _json_text(raw: bytes) -> Any:
    try:
        return _decode_text(raw)
    except msgspec.DecodeError:  # lone surrogates, which only the standard library's reader takes
        return json.loads(raw)
