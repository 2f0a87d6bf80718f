"""The slow way: turn any value into what JSON carries, one part at a time.

Rules of this part:

- One walk, three purposes. `Masking` (forward values) replaces and cuts and never refuses;
  `Refusing` (compensation arguments) raises and never replaces; `Stable` (the arguments' MAC)
  neither masks nor refuses, and gives equal values equal forms.
- Only exact types are carried. A subclass may carry meaning of its own (an enum's member, a named
  tuple's fields), so it is described in forward values and refused in compensation arguments.
- No method of the user's classes is called here, except by `Stable`, which catches what they
  raise.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import os
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Any, Final, NoReturn

import msgspec

from agent_saga.domain.secrets import MASK, looks_secret, mask_text, secret_key
from agent_saga.errors import NotRecordable, SecretLeak
from agent_saga.wal.limits import MASK_MARGIN, MAX_DEPTH, MAX_ITEMS, MAX_PAYLOAD, MAX_TEXT
from agent_saga.wal.plain import SAFE_INT, TAG
from agent_saga.wal.tags import CONTAINERS, SCALARS, number_tag, tagged, text_tag

__all__ = ["Looking", "Masking", "Refusing", "Stable", "encode_json", "type_name"]

encode_json: Final = msgspec.json.Encoder().encode
_BITS: Final = 8 * MAX_TEXT

_METHODS: Final[dict[type, str]] = {
    type(None): "constant",
    bool: "constant",
    str: "text",
    int: "number",
    float: "number",
    dict: "mapping",
    list: "sequence",
    **dict.fromkeys(CONTAINERS, "container"),
    **dict.fromkeys(SCALARS, "scalar"),
}
_BASES: Final[tuple[tuple[type, str, Callable[[Any], Any]], ...]] = (
    (str, "text", str.__str__),
    (int, "number", int.__int__),
    (float, "number", float.__float__),
    (dict, "mapping", lambda value: value),
    (list, "sequence", list.__iter__),
    (tuple, "sequence", tuple.__iter__),
)


def type_name(value: object) -> str:
    """The full name of a value's type, whatever its metaclass does."""
    kind = type(value)
    try:
        return f"{kind.__module__}.{kind.__qualname__}"
    except Exception:  # a metaclass may answer with anything
        return "unknown"


class Walk:
    """One walk over one value; `convert` gives the form that JSON carries."""

    __slots__ = ("items", "path", "room")
    max_items = MAX_ITEMS
    max_bytes: float = MAX_PAYLOAD

    def __init__(self) -> None:
        self.items = self.max_items
        self.room = self.max_bytes
        self.path: list[object] = []

    def convert(self, value: Any, depth: int = 0) -> object:
        """The value in a form that JSON carries."""
        self.items -= 1
        self.room -= 8
        if depth > MAX_DEPTH:
            return self.unfit(value, "deep", f"it is nested more than {MAX_DEPTH} deep")
        if self.spent():
            return self.rest(value)
        method = _METHODS.get(type(value), "other")
        form: object = getattr(self, method)(value, depth)
        return form

    def spent(self) -> bool:
        """Whether the value is larger than a record may be; what follows is left out."""
        return self.items < 0 or self.room < 0

    def rest(self, value: object) -> object:
        """What stands in place of everything behind the bound."""
        return self.unfit(value, "cut", "it is too large for the log")

    def constant(self, value: object, depth: int = 0) -> object:
        """None, True or False."""
        del depth
        return value

    def number(self, value: float, depth: int = 0) -> object:
        """A finite float or a small int as it is, any other one tagged."""
        if isinstance(value, int):
            if -SAFE_INT <= value <= SAFE_INT:
                return value
            if value.bit_length() > _BITS:
                return self.rest(value)
            self.room -= value.bit_length() // 4
            return number_tag(value)
        return value if value - value == 0.0 else number_tag(value)

    def text(self, value: str, depth: int = 0) -> object:
        """A text without secrets, tagged when UTF-8 cannot carry it."""
        if len(value) > MAX_TEXT:
            return self.rest(value)
        if looks_secret(value):
            return self.secret(value, "its value looks like one")
        return self.encoded_text(value)

    def encoded_text(self, value: str) -> object:
        """The text, or its tag when it holds lone surrogates."""
        self.room -= len(value)
        try:
            value.encode()
        except UnicodeEncodeError:
            return text_tag(value)
        return value

    def scalar(self, value: Any, depth: int = 0) -> object:
        """A value without parts, as its tag."""
        kind, data_of = SCALARS[type(value)]
        why = self.why_not_exact(value)
        if why:
            return self.unfit(value, "object", why)
        if kind == "bytes" and looks_secret(value.decode("latin-1")):
            return self.secret(value, "its value looks like one")
        data = data_of(value)
        if isinstance(data, str):
            self.room -= len(data)
        return tagged(kind, data)

    def why_not_exact(self, value: Any) -> str:
        """Why a value of a known type cannot come back as itself; "" when it can."""
        if type(value) is bytes and len(value) > MAX_TEXT:
            return "it is too large for the log"
        zone = getattr(value, "tzinfo", None)
        if zone is not None and type(zone).__module__ != "datetime":
            return "its time zone cannot be recorded; convert it to UTC"
        return ""

    def mapping(self, value: dict[Any, Any], depth: int) -> object:
        """A dict as it is, or as pairs when JSON or our tags would confuse its keys."""
        items = list(islice(dict.items(value), max(0, self.items) + 1))
        if all(type(key) is str and key != TAG and self.plain_key(key) for key, _ in items):
            return self.fields(items, depth)
        return tagged("dict", self.pairs(items, depth))

    def fields(self, items: list[tuple[Any, Any]], depth: int) -> dict[str, object]:
        """The items of a dict with plain keys; those behind the bound are left out."""
        forms: dict[str, object] = {}
        for key, item in items:
            forms[key] = self.field(key, item, depth)
            if self.spent():
                forms["…"] = self.rest(item)
                break
        return forms

    def pairs(self, items: list[tuple[Any, Any]], depth: int) -> list[object]:
        """The items of a dict whose keys are not all plain texts."""
        found: list[object] = []
        for key, item in items:
            if type(key) in (dict, list, tuple, set, frozenset):
                found.append([self.unfit(key, "object", "a key of its type cannot be recorded"), 0])
            else:
                found.append([self.convert(key, depth + 1), self.field(key, item, depth)])
            if self.spent():
                found.append(["…", self.rest(item)])
                break
        return found

    def plain_key(self, key: str) -> bool:
        """Whether a key can stand in the log as a JSON key."""
        if len(key) > MAX_TEXT or looks_secret(key):
            return False
        return self.encoded_text(key) is key

    def field(self, key: object, item: object, depth: int) -> object:
        """One item of a dict, judged by its key first."""
        self.path.append(key)
        named = type(key) is str and len(key) <= MAX_TEXT and secret_key(key)
        empty = item is None or type(item) is bool or (type(item) is str and not item)
        if named and not empty:
            form = self.secret(item, "its name says so")
        else:
            form = self.convert(item, depth + 1)
        self.path.pop()
        return form

    def sequence(self, value: Any, depth: int) -> list[object]:
        """A list, part by part."""
        forms: list[object] = []
        for index, item in enumerate(value):
            self.path.append(index)
            forms.append(self.convert(item, depth + 1))
            self.path.pop()
            if self.spent():
                forms.append(self.rest(item))
                break
        return forms

    def container(self, value: Any, depth: int) -> object:
        """A tuple or set as a tagged list; a set in an order of its own, the same everywhere."""
        forms = self.sequence(value, depth)
        if type(value) is not tuple:
            forms.sort(key=encode_json)
        return tagged(CONTAINERS[type(value)], forms)

    def content(self, value: Any, depth: int) -> list[object]:
        """What a subclass of a plain type holds, as a list of one form; empty for other types."""
        for base, method, content_of in _BASES:
            if isinstance(value, base):
                return [getattr(self, method)(content_of(value), depth)]
        return []

    def other(self, value: Any, depth: int) -> object:
        """A value of a type that the log does not know."""
        return self.unfit(value, "object", f"a {type_name(value)} cannot be recorded")

    def secret(self, value: object, why: str) -> object:
        """What stands in place of a secret."""
        raise NotImplementedError

    def unfit(self, value: object, kind: str, why: str) -> object:
        """What stands in place of a value that the log cannot carry."""
        raise NotImplementedError


class Masking(Walk):
    """The walk of forward values: whatever comes, something stands in the log."""

    __slots__ = ("faithful",)

    def __init__(self) -> None:
        super().__init__()
        self.faithful = True

    def text(self, value: str, depth: int = 0) -> object:
        """The text with secrets masked first and its length cut second."""
        if len(value) <= MAX_TEXT and not looks_secret(value):
            return self.encoded_text(value)
        self.faithful = False
        form = self.encoded_text(mask_text(value[: MAX_TEXT + MASK_MARGIN])[:MAX_TEXT])
        return form if len(value) <= MAX_TEXT else tagged("cut", [form, len(value)])

    def other(self, value: Any, depth: int) -> object:
        """What a subclass of a plain type holds, else the name of its type."""
        self.faithful = False
        content = self.content(value, depth)
        return content[0] if content else self.unfit(value, "object", "")

    def secret(self, value: object, why: str) -> object:
        """The mask."""
        del value, why
        self.faithful = False
        return MASK

    def unfit(self, value: object, kind: str, why: str) -> object:
        """The name of the type, and nothing that the value itself says."""
        del why
        self.faithful = False
        return tagged(kind, mask_text(type_name(value)[:200].encode("ascii", "replace").decode()))


class Refusing(Walk):
    """The walk of compensation arguments: exactly, or not at all."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def place(self) -> str:
        """Where in the value the walk stands, for a person."""
        steps = [f"[{key!r}]"[:80] if isinstance(key, str | int) else "[…]" for key in self.path]
        return self.what + "".join(steps)

    def secret(self, value: object, why: str) -> NoReturn:
        """Refuse; the message never shows the value."""
        del value
        raise SecretLeak(
            f"{self.place()} holds a secret ({why}), and the log must not.",
            fix="Leave it out (`@tool.undo(keep=…)` records only the fields it names), and let "
            "the handler fetch the secret when it runs.",
        )

    def unfit(self, value: object, kind: str, why: str) -> NoReturn:
        """Refuse, naming the place inside the value."""
        del value, kind
        raise NotRecordable(
            f"{self.place()} cannot be recorded exactly: {why}.",
            fix="Pass plain data (text, numbers, dates, lists, dicts); `@tool.undo(keep=…)` "
            "records only the fields it names.",
        )


class Looking(Refusing):
    """The walk that looks for secrets only."""

    __slots__ = ()

    def unfit(self, value: object, kind: str, why: str) -> object:  # type: ignore[override]
        """Pass over what cannot be recorded."""
        del value, kind, why
        return None


class Stable(Walk):
    """The walk of the arguments' MAC: equal values take equal forms, and nothing is written."""

    __slots__ = ()
    max_items = 2 * MAX_ITEMS
    max_bytes = math.inf

    def text(self, value: str, depth: int = 0) -> object:
        """The text, whatever it holds."""
        return self.encoded_text(value)

    def plain_key(self, key: str) -> bool:
        """Any key that UTF-8 carries."""
        return self.encoded_text(key) is key

    def pairs(self, items: list[tuple[Any, Any]], depth: int) -> list[object]:
        """The items in an order that does not depend on how the dict was built."""
        return sorted(super().pairs(items, depth), key=encode_json)

    def field(self, key: object, item: object, depth: int) -> object:
        """The item, whatever its key."""
        return self.convert(item, depth + 1)

    def why_not_exact(self, value: Any) -> str:
        """Every value of a known type has a form."""
        return ""

    def scalar(self, value: Any, depth: int = 0) -> object:
        """The tag; an aware time as its instant, since equal instants compare equal."""
        kind, data_of = SCALARS[type(value)]
        if type(value) is dt.datetime and value.tzinfo is not None:
            value = value.astimezone(dt.UTC)
        return tagged(kind, data_of(value))

    def number(self, value: float, depth: int = 0) -> object:
        """Every number has a form."""
        if isinstance(value, int) and not -SAFE_INT <= value <= SAFE_INT:
            return number_tag(value)
        return value if value - value == 0.0 else number_tag(value)

    def container(self, value: Any, depth: int) -> object:
        """A tuple as a list: what went through JSON once compares equal to what did not."""
        if type(value) is tuple:
            return self.sequence(value, depth)
        return super().container(value, depth)

    def other(self, value: Any, depth: int) -> object:
        """The fields of a data object, the content of a subclass, else a token of its own."""
        if isinstance(value, Enum):
            return [type_name(value), str(value.name)]
        content = self.content(value, depth)
        if content:
            return content[0]
        fields = _fields_of(value)
        if fields is None:
            return [type_name(value), os.urandom(16).hex()]
        return [type_name(value), self.mapping(fields, depth + 1)]

    def unfit(self, value: object, kind: str, why: str) -> object:
        """A mark that is the same for equal values."""
        del why
        return [kind, type_name(value)]


def _fields_of(value: Any) -> dict[Any, Any] | None:
    """What a data object is made of, or None for an object that keeps that to itself."""
    try:
        if dataclasses.is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, msgspec.Struct):
            return {name: getattr(value, name) for name in value.__struct_fields__}
        dump = getattr(type(value), "model_dump", None)
        dumped = None if dump is None else dump(value)
    except Exception:  # code of the user's that fails shows no state
        return None
    return dumped if type(dumped) is dict else None
