"""The documents of the state store: what they may hold, and their form when stored.

Rules of this part:

- A document is plain JSON data: a dict with string keys, lists, strings, finite floats, booleans,
  None, and integers that every JSON reader carries exactly. A subclass of these is refused.
- What cannot be carried exactly is refused before anything is stored (`NotRecordable`), because a
  rule must read back what it wrote.
- The stored form names its format; one that this release does not read is refused, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from agent_saga.errors import NotRecordable, StateError

__all__ = ["FORMAT", "Doc", "check_key", "decode", "encode"]

Doc: TypeAlias = dict[str, Any]

FORMAT: Final = 1
"""The document format that this release writes and reads."""

MAX_KEY_BYTES: Final = 1024
MAX_BODY_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_INT: Final = 2**53
_TEXT: Final = frozenset({str})
_WHATEVER_THEY_SAY: Final = frozenset({str, bool, type(None)})
"""Kinds that are carried whatever the value; of a broken text the encoder tells."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def check_key(key: str) -> str:
    """Return the key if a store can carry it.

    Raises:
        NotRecordable: the key is no string, is empty, is longer than `MAX_KEY_BYTES` when encoded,
            or holds a lone surrogate.
    """
    if type(key) is not str or not key:
        raise NotRecordable("A state key must be a string with at least one character.")
    size = len(key) if key.isascii() else len(_utf8(key, "the key"))
    if size > MAX_KEY_BYTES:
        raise NotRecordable(f"A state key is longer than {MAX_KEY_BYTES} bytes: {key[:60]!r}…")
    return key


def encode(doc: Doc) -> bytes:
    """Return the stored form of a document.

    Raises:
        NotRecordable: the document holds something that plain JSON does not carry exactly, is
            nested deeper than `MAX_DEPTH`, or is larger than `MAX_BODY_BYTES`.
    """
    if type(doc) is not dict:
        raise NotRecordable(f"A state document must be a dict, not {type(doc).__qualname__}.")
    try:
        if not (_TEXT.issuperset(map(type, doc)) and _is_plain(doc.values(), MAX_DEPTH - 1)):
            _check(doc, "document", 0)
        body = _encode({"v": FORMAT, "doc": doc})
    except UnicodeEncodeError:
        _check(doc, "document", 0)  # names the broken text
        raise
    if len(body) > MAX_BODY_BYTES:
        raise NotRecordable(f"A state document is larger than {MAX_BODY_BYTES} bytes.")
    return body


def decode(body: bytes, *, where: str) -> Doc:
    """Return the document of a stored form; each call returns a new one.

    Args:
        body: what `encode` returned.
        where: what to name in the error, for example the file and the key.

    Raises:
        StateError: the bytes are no document, or one of a format that this release does not read.
    """
    try:
        envelope = _decode(body)
        fmt, doc = envelope["v"], envelope["doc"]
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
        raise StateError(f"The state document of {where} is damaged: {error}.") from error
    if fmt != FORMAT:
        raise StateError(
            f"The state document of {where} has format {fmt!r}; this version reads {FORMAT}.",
            fix="Use a version of agent-saga-core at least as new as the one that wrote it.",
        )
    if type(doc) is not dict:
        raise StateError(f"The state document of {where} is damaged: it is no object.")
    return doc


def _check(value: object, path: str, depth: int) -> None:
    """Refuse what plain JSON does not carry exactly, naming the path to it."""
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotRecordable(f"{path} is nested deeper than {MAX_DEPTH} levels.")
    if kind is dict:
        _check_dict(value, path, depth)  # type: ignore[arg-type]
    elif kind is list:
        _check_list(value, path, depth)  # type: ignore[arg-type]
    elif kind is str:
        _utf8(value, path)  # type: ignore[arg-type]
    elif kind is int:
        if not -MAX_INT <= value <= MAX_INT:  # type: ignore[operator]
            raise NotRecordable(f"{path} is an integer beyond 2^53; store it as a string.")
    elif kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise NotRecordable(f"{path} is {value!r}, which JSON cannot carry.")
    elif value is not None and kind is not bool:
        raise NotRecordable(f"{path} is a {kind.__qualname__}, which JSON cannot carry exactly.")


def _check_dict(value: dict[object, object], path: str, depth: int) -> None:
    for key, item in value.items():
        if type(key) is not str:
            raise NotRecordable(f"{path} has a key that is no string: {type(key).__qualname__}.")
        _utf8(key, path)
        _check(item, f"{path}.{key[:60]}", depth + 1)


def _check_list(value: list[object], path: str, depth: int) -> None:
    for index, item in enumerate(value):
        _check(item, f"{path}[{index}]", depth + 1)


def _is_plain(values: Iterable[Any], depth: int) -> bool:
    """Say quickly that values need no closer look; most documents are so. False is always safe."""
    for item in values:
        kind = type(item)
        if kind in _WHATEVER_THEY_SAY:
            continue
        if kind is int:
            ok = -MAX_INT <= item <= MAX_INT
        elif kind is float:
            ok = item - item == 0.0
        elif kind is list:
            ok = depth > 0 and _is_plain(item, depth - 1)
        else:
            ok = kind is dict and depth > 0 and _TEXT.issuperset(map(type, item))
            ok = ok and _is_plain(item.values(), depth - 1)
        if not ok:
            return False
    return True


def _utf8(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NotRecordable(f"{path} holds a lone surrogate, which JSON cannot carry.") from error
