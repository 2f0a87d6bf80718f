"""Checking arguments by a schema: a Pydantic model, a type of msgspec, or a JSON Schema.

Rules of this part:

- Pydantic and jsonschema are never imported unless a program uses them.
- Nothing is fetched: a JSON Schema that refers to an address which it does not hold is refused.
- Arguments are not changed and not completed; they fit as they are, or not. A float that is no
  number fits no schema: it is neither above a bound nor below it, so no bound would hold.
- No schema stalls the gate. Its patterns are bounded (see `patterns`), and so is how many of its
  words are applied to a call; what takes more raises, which refuses the call.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from agent_saga.controls.patterns import bounded_schema
from agent_saga.errors import ConfigurationError

__all__ = ["Checker", "checker_of"]

MOST_STEPS: Final = 50_000
"""How many words of a JSON Schema are applied to one call at most: about a second."""

Checker: TypeAlias = Callable[[dict[str, Any]], bool]


def checker_of(schema: Any) -> Checker:
    """Return a function that says whether arguments fit a schema.

    Raises:
        ConfigurationError: it is no schema, or the extra `schema` is needed and not installed.
    """
    if isinstance(schema, Mapping):
        return _comparing(_json_schema(schema))
    if isinstance(schema, type) and callable(getattr(schema, "model_validate", None)):
        return _comparing(_pydantic(schema))
    return _comparing(_msgspec(schema))


def _comparing(fits: Checker) -> Checker:
    """Return a checker that lets nothing pass that no bound of a schema can be compared with."""
    return lambda arguments: fits(arguments) and not _holds_nan(arguments)


def _holds_nan(value: object) -> bool:
    """Say whether a NaN is among values, however deep; a schema has bounded their depth before."""
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 - NaN equals nothing
    if isinstance(value, Mapping):
        return any(map(_holds_nan, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_holds_nan, value))


def _msgspec(schema: Any) -> Checker:
    try:
        told = msgspec.json.schema(schema)
    except Exception as error:
        raise ConfigurationError(
            f"{schema!r} is no schema: {error}.",
            fix="Give a Pydantic model, a msgspec Struct, a dataclass, a TypedDict or a mapping.",
        ) from error
    bound = bounded_schema(told)

    def fits(arguments: dict[str, Any]) -> bool:
        if bound is not None:
            bound.check(arguments)
        try:
            msgspec.convert(arguments, schema)
        except msgspec.ValidationError:
            return False
        return True

    return fits


def _pydantic(model: Any) -> Checker:
    from pydantic import ValidationError  # noqa: PLC0415 - whoever has a model has loaded it

    def fits(arguments: dict[str, Any]) -> bool:
        try:
            model.model_validate(arguments)
        except ValidationError:
            return False
        return True

    return fits


def _json_schema(schema: Mapping[str, Any]) -> Checker:
    try:
        from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - an extra
        from jsonschema.validators import extend, validator_for  # noqa: PLC0415 - an extra
        from referencing import Registry  # noqa: PLC0415 - comes with it
    except ImportError as error:
        raise ConfigurationError(
            "A JSON Schema needs the extra `schema`, which is not installed.",
            fix="pip install 'agent-saga-core[schema]'",
        ) from error
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigurationError(f"That is no JSON Schema: {error.message}.") from error
    steps = _Steps()
    counted = {word: steps.counting(check) for word, check in kind.VALIDATORS.items()}
    if "pattern" in counted:
        counted["pattern"] = steps.counting(_pattern)
    if "uniqueItems" in counted:
        counted["uniqueItems"] = steps.counting(_unique_items)
    validator = extend(kind, counted)(schema, registry=Registry())
    bound = bounded_schema(schema)

    def fits(arguments: dict[str, Any]) -> bool:
        if bound is not None:
            bound.check(arguments)
        steps.begin()
        return bool(validator.is_valid(arguments))

    return fits


class _Steps(threading.local):
    """Counts the words of a schema that are applied while one call is judged, thread by thread."""

    taken = 0

    def begin(self) -> None:
        """Begin with the next call."""
        self.taken = 0

    def counting(self, check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        """Return the check of a word that counts how often it is applied."""

        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self.taken += 1
            if self.taken > MOST_STEPS:
                raise ValueError(
                    f"its arguments take more than {MOST_STEPS} steps to be checked by the schema"
                )
            yield from check(validator, value, instance, schema) or ()

        return counted


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
    """Say whether a text matches; `$` is its end, not a place before a line break at its end."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - an extra

    if not isinstance(instance, str):
        return
    found = re.search(pattern, instance)
    if found and instance.endswith("\n"):
        found = re.search(pattern, f"{instance}\0")
    if not found:
        yield ValidationError("it does not match the pattern")


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
    """Say whether a list holds something twice, looking at every item once."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - an extra

    items = instance if value and isinstance(instance, list) else []
    if len({_comparable(item) for item in items}) < len(items):
        yield ValidationError("it holds something twice")


def _comparable(item: Any) -> Any:
    """Return what is equal for items that a JSON Schema takes for equal: 1 is 1.0, and not true."""
    if isinstance(item, Mapping):
        return dict, frozenset((key, _comparable(value)) for key, value in item.items())
    if isinstance(item, list | tuple):
        return list, tuple(_comparable(value) for value in item)
    return isinstance(item, bool), item
