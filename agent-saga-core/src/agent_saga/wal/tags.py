"""How values that JSON cannot carry stand in the log, and how they come back.

Rules of this part:

- A tagged value is `{"$t": kind, "v": data}`. Only plain data comes back: no code runs, no type
  is looked up by name. A tag that is unknown or malformed stays the dict that it is.
- A user's own dict that has the key `$t`, or keys that are not text, is stored as a list of pairs
  under the kind `dict`, so that it comes back as itself and never as something else.
- Kinds that only describe (`object`, `cut`, `deep`) are not revived.
"""

from __future__ import annotations

import datetime as dt
from base64 import b64decode, b64encode
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from agent_saga.wal.plain import SAFE_INT, TAG

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CONTAINERS", "SCALARS", "revived", "tagged"]

SCALARS: Final[dict[type, tuple[str, Callable[[Any], object]]]] = {
    bytes: ("bytes", lambda value: b64encode(value).decode("ascii")),
    Decimal: ("decimal", str),
    dt.datetime: ("datetime", dt.datetime.isoformat),
    dt.date: ("date", dt.date.isoformat),
    dt.time: ("time", dt.time.isoformat),
    dt.timedelta: ("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    UUID: ("uuid", lambda value: value.hex),
}
"""Exact types without parts: the kind, and the data that carries them."""

CONTAINERS: Final[dict[type, str]] = {tuple: "tuple", set: "set", frozenset: "frozenset"}
"""Exact types with parts, carried as a list."""


def tagged(kind: str, data: object) -> dict[str, object]:
    """The dict that stands for a value."""
    return {TAG: kind, "v": data}


def text_tag(value: str) -> dict[str, object]:
    """A text with lone surrogates, which UTF-8 cannot carry."""
    return tagged("text", value.encode("unicode_escape").decode("ascii"))


def number_tag(value: float) -> dict[str, object]:
    """An int beyond 2^53, in hexadecimal (quick at any length), or a float without a value."""
    return tagged("int", hex(value)) if isinstance(value, int) else tagged("float", repr(value))


def revived(value: object) -> object:
    """The value with every tag of plain data in it turned back; never raises for odd content."""
    kind = type(value)
    if kind is list:
        return [revived(item) for item in value]  # type: ignore[attr-defined]
    if kind is not dict:
        return value
    fields: dict[str, Any] = value  # type: ignore[assignment]
    parts = {key: revived(item) for key, item in fields.items()}
    if parts.keys() != _TAG_FIELDS or type(parts[TAG]) is not str:
        return parts
    reviver = _REVIVERS.get(parts[TAG])
    if reviver is None:
        return parts
    try:
        return reviver(parts["v"])
    except Exception:  # whatever a damaged or foreign tag provokes, it stays data
        return parts


_TAG_FIELDS: Final = {TAG, "v"}


def _text(value: str) -> str:
    return value.encode("ascii").decode("unicode_escape")


def _int(value: str) -> int:
    number = int(value, 16)
    if -SAFE_INT <= number <= SAFE_INT:
        raise ValueError(value)
    return number


def _float(value: str) -> float:
    return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[value]


def _pairs(value: list[list[Any]]) -> dict[Any, Any]:
    return {key: item for key, item in value}  # noqa: C416 - each pair must have two parts


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError(value)
    return value


_REVIVERS: Final[dict[str, Callable[[Any], object]]] = {
    "bytes": lambda value: b64decode(value, validate=True),
    "decimal": Decimal,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "timedelta": lambda value: dt.timedelta(*value),
    "uuid": lambda value: UUID(hex=value),
    "text": _text,
    "int": _int,
    "float": _float,
    "tuple": lambda value: tuple(_list(value)),
    "set": lambda value: set(_list(value)),
    "frozenset": lambda value: frozenset(_list(value)),
    "dict": lambda value: _pairs(_list(value)),
}
