"""Checking arguments by a schema: a Pydantic model, a type of msgspec, or a JSON Schema.

Rules of this part:

- Pydantic and jsonschema are never imported unless a program uses them.
- Nothing is fetched: a JSON Schema that refers to an address which it does not hold is refused.
- Arguments are not changed and not completed; they fit as they are, or not.
- The patterns of a schema cannot stall the gate: see `patterns`. Pydantic's own never can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from agent_saga.controls.patterns import bounded_schema
from agent_saga.errors import ConfigurationError

__all__ = ["Checker", "checker_of"]

Checker: TypeAlias = Callable[[dict[str, Any]], bool]


def checker_of(schema: Any) -> Checker:
    """Return a function that says whether arguments fit a schema.

    Raises:
        ConfigurationError: it is no schema, or the extra `schema` is needed and not installed.
    """
    if isinstance(schema, Mapping):
        return _json_schema(schema)
    if isinstance(schema, type) and callable(getattr(schema, "model_validate", None)):
        return _pydantic(schema)
    return _msgspec(schema)


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
        from jsonschema.validators import validator_for  # noqa: PLC0415 - an extra
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
    validator = kind(schema, registry=Registry())
    bound = bounded_schema(schema)

    def fits(arguments: dict[str, Any]) -> bool:
        if bound is not None:
            bound.check(arguments)
        return bool(validator.is_valid(arguments))

    return fits
