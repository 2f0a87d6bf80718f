"""The one entrance of the log: whatever is written was encoded here.

Rules of this part:

- `masked` takes any forward value and never raises: secrets are masked, what JSON cannot carry is
  tagged, what is too large is cut. It says whether the value would come back equal.
- `exact` takes compensation arguments: what it returns comes back as it was; a secret raises
  `SecretLeak`, anything that cannot come back exactly raises `NotRecordable`, before any effect.
- `decode` revives plain data only. The log is written by models and web pages; reading it runs no
  code.
- A `Fragment` is JSON that was made here. `append` takes nothing else, so nothing passes
  unmasked.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from agent_saga.errors import NotRecordable, SecretLeak, WALCorrupt
from agent_saga.wal.limits import MAX_PAYLOAD
from agent_saga.wal.plain import TAG, plain, plain_data
from agent_saga.wal.tags import revived, tagged
from agent_saga.wal.walk import Looking, Masking, Refusing, Stable, encode_json, type_name

__all__ = [
    "EMPTY",
    "Fragment",
    "arguments",
    "assert_no_secrets",
    "compose",
    "composed",
    "count",
    "decode",
    "exact",
    "listed",
    "literal",
    "mac",
    "mac_of",
    "masked",
    "name",
    "opaque",
    "same_arguments",
]

_encode_sorted: Final = msgspec.json.Encoder(order="deterministic").encode
_decode_json: Final = msgspec.json.Decoder().decode
_layouts: Final[dict[tuple[str, ...], bytes]] = {}
_TAGGED: Final = encode_json(TAG)
_ESCAPED: Final = rb"\u"
"""Where neither stands there is no tag: nothing else can write its name."""


class Fragment(bytes):
    """Encoded JSON that was made by this module, so it holds no secret and no broken text."""

    __slots__ = ()


_ONLY_FRAGMENTS: Final = frozenset({Fragment})
_SMALL: Final = 1024

EMPTY: Final = Fragment(b"{}")
"""The payload of a record that has nothing more to say."""


def masked(value: object) -> tuple[Fragment, bool]:
    """Encode a forward value for the log.

    Args:
        value: anything at all.

    Returns:
        The encoded value, and whether it is *faithful*: `decode` gives an equal value back (NaN for
        NaN), since nothing was masked, cut or reduced to the name of its type.

    Never raises; what cannot even be looked at is described by the name of its type.
    """
    try:
        if plain(value):
            data = encode_json(value)
            if len(data) <= MAX_PAYLOAD:
                return Fragment(data), True
    except Exception:  # noqa: S110 - it changed under the walk, nests too deep, holds a broken text
        pass
    return _masked_slowly(value)


def _masked_slowly(value: object) -> tuple[Fragment, bool]:
    try:
        walk = Masking()
        data = encode_json(walk.convert(value))
        if len(data) <= 2 * MAX_PAYLOAD:
            return Fragment(data), walk.faithful
        kind = "cut"
    except Exception:  # encoding a result never fails a step
        kind = "object"
    name = type_name(value)[:200].encode("ascii", "replace").decode("ascii")
    return Fragment(encode_json(tagged(kind, name))), False


def exact(value: object, *, what: str) -> Fragment:
    """Encode a compensation argument so that it comes back exactly.

    Args:
        value: plain data; dates, Decimal, UUID, bytes, tuples and sets are carried too.
        what: what the value is, for the message of an error.

    Raises:
        SecretLeak: a name or a value in it looks like a secret.
        NotRecordable: a part of it cannot come back as it was; the message names the part.
    """
    try:
        if plain(value):
            data = encode_json(value)
            if len(data) <= MAX_PAYLOAD:
                return Fragment(data)
    except Exception:  # noqa: S110 - as in `masked`; the slow way says what is wrong
        pass
    try:
        data = encode_json(Refusing(what).convert(value))
    except (SecretLeak, NotRecordable):
        raise
    except Exception as error:
        raise NotRecordable(f"{what} cannot be recorded: {type_name(error)}.") from error
    if len(data) > 2 * MAX_PAYLOAD:
        raise NotRecordable(f"{what} is too large for the log.")
    return Fragment(data)


def literal(value: object) -> Fragment:
    """Encode a constant of our own: an int, a bool, a short name, a list of them."""
    return exact(value, what="a constant of the log")


@functools.lru_cache(maxsize=1024)
def name(text: str) -> Fragment:
    """Encode a name that comes again and again, such as a handler's; it is kept."""
    return literal(text)


def count(number: int) -> Fragment:
    """Encode a number that we counted ourselves."""
    return _small(number) if number < _SMALL else Fragment(b"%d" % number)


@functools.lru_cache(maxsize=_SMALL)
def _small(number: int) -> Fragment:
    """Encode a number that comes again and again, as the first calls of every saga do; kept."""
    return Fragment(b"%d" % number)


def opaque(text: str) -> Fragment:
    """Encode an id or a key that was made here: letters, digits, `-` and `_`."""
    return Fragment(b'"%b"' % text.encode("ascii"))


def compose(**fields: Fragment) -> Fragment:
    """Join encoded values into one JSON object, in the order given.

    Raises:
        TypeError: a value was not encoded by this module.
    """
    return composed(fields)


def composed(fields: Mapping[str, Fragment]) -> Fragment:
    """Join encoded values as `compose` does.

    Raises:
        TypeError: a value was not encoded by this module.
    """
    names, values = tuple(fields), tuple(fields.values())
    if not _ONLY_FRAGMENTS.issuperset(map(type, values)):
        raise TypeError("A field was not encoded by agent_saga.wal.encoding.")
    return Fragment((_layouts.get(names) or _layout(names)) % values)


def listed(values: Sequence[Fragment]) -> Fragment:
    """Join encoded values into one JSON array.

    Raises:
        TypeError: a value was not encoded by this module.
    """
    if not _ONLY_FRAGMENTS.issuperset(map(type, values)):
        raise TypeError("A value was not encoded by agent_saga.wal.encoding.")
    return Fragment(b"[" + b",".join(values) + b"]")


def _layout(names: tuple[str, ...]) -> bytes:
    """The object with a place for each value; there are as many as our code has calls."""
    fields = [encode_json(name).replace(b"%", b"%%") + b":%b" for name in names]
    form = _layouts[names] = b"{" + b",".join(fields) + b"}"
    return form


def decode(data: bytes) -> object:
    """Turn an encoded value back into plain data; tags that are unknown stay dicts.

    Raises:
        WALCorrupt: the bytes are not JSON, or nest deeper than anything that was written.
    """
    try:
        value = _decode_json(data)
        return revived(value) if _TAGGED in data or _ESCAPED in data else value
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WALCorrupt(f"A value in the log is not readable: {error}") from error


def arguments(salt: bytes, value: object) -> tuple[Fragment, bool, bytes]:
    """Encode a call's arguments for the log and for their MAC; in the common case one form is both.

    Args:
        salt: as for `mac`.
        value: the arguments.

    Returns:
        What `masked` returns, and what `mac` returns; the latter is empty in the common case, where
        `mac_of` gives it from the former whenever somebody asks.

    Never raises.
    """
    try:
        if plain(value):
            data = _encode_sorted(value)
            if len(data) <= MAX_PAYLOAD:
                return Fragment(data), True, b""
    except Exception:  # noqa: S110 - as in `masked`
        pass
    return *masked(value), mac(salt, value)


def mac_of(salt: bytes, data: Fragment) -> bytes:
    """The MAC of arguments whose encoded form `arguments` gave together with an empty one."""
    return sha256(salt + data).digest()[:16]


def same_arguments(data: Fragment, value: object) -> bool:
    """Whether arguments still have the form that `arguments` gave together with an empty MAC."""
    return _stable_form(value) == data


def mac(salt: bytes, value: object) -> bytes:
    """A fingerprint of a call's arguments: 16 bytes, equal for equal values, not invertible.

    Args:
        salt: random bytes of the saga; who erases them makes the fingerprint meaningless.
        value: the arguments, unmasked; nothing of them is kept.

    Never raises. An object that shows no state of its own never equals another one.
    """
    return sha256(salt + _stable_form(value)).digest()[:16]


def _stable_form(value: object) -> bytes:
    try:
        data = _encode_sorted(value) if plain_data(value) else None
    except Exception:  # whatever goes wrong here, the slow way is next
        data = None
    return _stable_form_slowly(value) if data is None else data


def _stable_form_slowly(value: object) -> bytes:
    try:
        return _encode_sorted(Stable().convert(value))
    except Exception:  # a property or a model_dump of the user's raised
        return os.urandom(16)


def assert_no_secrets(value: object, *, what: str = "the value") -> None:
    """Check at authoring time that a value holds nothing that looks like a secret.

    Raises:
        SecretLeak: a name or a value in it looks like a secret; the message names the place.
    """
    Looking(what).convert(value)
