"""Inverses written as data: `refund.using(id="$.id")`, the same grammar as in a policy file.

Grammar of a string value: `$` or `$.a.b` reads the result, `$args.a` the call's arguments,
`$prepared.a` what `prepare` returned; a part that is a whole number indexes a list; `$$…` is a
literal that starts with one dollar sign. Every other value stands for itself; mappings and lists
are walked. A template that never reads the result can be derived before the effect.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from typing import Any

from agent_saga.domain.compensation import Compensation
from agent_saga.errors import CompensationError, ConfigurationError

_ROOTS = {"$": "result", "$args": "args", "$prepared": "prepared"}


class Template:
    """An inverse by name whose arguments are read from the step.

    Args:
        handler: the registered handler's name.
        kwargs: the handler's keyword arguments; strings may be paths.
        description: one line for the report.
    """

    __slots__ = ("_flat", "asks_args", "description", "handler", "kwargs", "needs_result")

    def __init__(self, handler: str, kwargs: Mapping[str, Any], description: str = "") -> None:
        if not isinstance(handler, str) or not handler:
            raise ConfigurationError("A compensation template needs the handler's name.")
        self.handler = handler
        self.kwargs = dict(kwargs)
        self.description = description
        self.needs_result = _reads(self.kwargs, "result")
        self.asks_args = _reads(self.kwargs, "args")
        self._flat = _fields_read(self.kwargs)

    def fill(self, sources: Mapping[str, Any]) -> Compensation:
        """Derive the inverse from a step.

        Args:
            sources: `args`, `prepared` and, if the template needs it, `result`.

        Raises:
            CompensationError: a path does not exist in its source.
        """
        if self._flat is None:
            kwargs = {name: _filled(value, sources) for name, value in self.kwargs.items()}
        else:
            kwargs = {n: _read(text, parts, sources[root]) for n, root, text, parts in self._flat}
        return Compensation(handler=self.handler, kwargs=kwargs, description=self.description)

    def __repr__(self) -> str:
        return f"Template({self.handler!r}, {self.kwargs!r})"


def template_from(value: Mapping[str, Any]) -> Template:
    """Return the template that a plain mapping with `handler` and `kwargs` means.

    Raises:
        ConfigurationError: the mapping has another form.
    """
    if "handler" not in value or not set(value) <= {"handler", "kwargs", "description"}:
        raise ConfigurationError(
            f"A compensation template is a mapping of 'handler' and 'kwargs', not {dict(value)!r}."
        )
    return Template(value["handler"], value.get("kwargs") or {}, value.get("description", ""))


def check_path(text: str, sources: Container[str]) -> None:
    """Refuse a text that is no path, or reads another source.

    Args:
        text: for example `$.amount` or `$args.amount`.
        sources: of `result`, `args` and `prepared`, those that may be read.

    Raises:
        ConfigurationError: it is no path, or reads something else.
    """
    root, parts = _parsed(text)
    if root is None or root not in sources or "" in parts:
        raise ConfigurationError(f"{text!r} is no path that can be read here.")


def read_path(text: str, sources: Mapping[str, Any]) -> Any:
    """Return what a path reads from its source.

    Raises:
        CompensationError: it does not exist there.
    """
    root, parts = _parsed(text)
    return _read(text, parts, sources[root or "result"])


def _root(text: str) -> str | None:
    if not text.startswith("$") or text.startswith("$$"):
        return None
    head = text.partition(".")[0]
    if head not in _ROOTS:
        raise ConfigurationError(
            f"The template path {text!r} starts with none of $., $args., $prepared.",
            fix="Write $$ for a literal dollar sign.",
        )
    return _ROOTS[head]


def _reads(value: Any, source: str) -> bool:
    if isinstance(value, str):
        return _root(value) == source
    if isinstance(value, Mapping):
        return any(_reads(v, source) for v in value.values())
    if isinstance(value, (list, tuple)):
        return any(_reads(v, source) for v in value)
    return False


def _fields_read(kwargs: Mapping[str, Any]) -> list[tuple[str, str, str, tuple[str, ...]]] | None:
    """Where each argument is read, when all of them are paths, which is the usual template.

    Its name, the source, the path, and the parts of that.
    """
    fields = []
    for name, value in kwargs.items():
        root, parts = _parsed(value) if isinstance(value, str) else (None, ())
        if root is None:
            return None
        fields.append((name, root, value, parts))
    return fields


def _filled(value: Any, sources: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        root, parts = _parsed(value)
        if root is not None:
            return _read(value, parts, sources[root])
        return value[1:] if value.startswith("$$") else value
    if isinstance(value, Mapping):
        return {k: _filled(v, sources) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(v, sources) for v in value]
    return value


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[str | None, tuple[str, ...]]:
    """The source that a text reads, if it is a path, and the parts of the path; they are kept."""
    return _root(text), tuple(text.split(".")[1:])


def _read(path: str, parts: tuple[str, ...], source: Any) -> Any:
    for part in parts:
        if type(source) is dict and part in source:
            source = source[part]
        else:
            source = _child(path, part, source)
    return source


def _child(path: str, part: str, source: Any) -> Any:
    try:
        if isinstance(source, Mapping):
            return source[part]
        if isinstance(source, (list, tuple)):
            return source[int(part)]
        if part.isidentifier() and not part.startswith("_"):
            return getattr(source, part)
    except (KeyError, IndexError, ValueError, AttributeError):
        pass
    raise CompensationError(
        f"The template path {path!r} finds no {part!r} in a {type(source).__name__}."
    )
