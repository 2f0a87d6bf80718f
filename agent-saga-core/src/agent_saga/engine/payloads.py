"""What the records of a step say, encoded: which call it is, what was taken for it, its inverse.

Rules of this part:

- What can be derived is not recorded: the MAC of arguments that are recorded faithfully, the key
  that the ordinal of the call (`n`) gives, the path of the root.
- An inverse is encoded once, at its first record, and stays what that says.
"""

from __future__ import annotations

import functools
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_saga.domain.compensation import Compensation
from agent_saga.errors import AgentSagaError, NotRecordable, SecretLeak
from agent_saga.plugins.registry import process_handlers
from agent_saga.wal.encoding import (
    Fragment,
    compose,
    composed,
    count,
    exact,
    literal,
    masked,
    name,
)

if TYPE_CHECKING:
    from agent_saga.domain.identity import StepKey
    from agent_saga.engine.step import Step
    from agent_saga.engine.tool import Tool
    from agent_saga.plugins.registry import Handler

_TRUE = literal(True)


def call_fields(step: Step) -> tuple[dict[str, Fragment], bool]:
    """Return what tells which call a step is, and whether its arguments come back equal."""
    arguments, faithful = step.encoded, step.faithful
    if arguments is None:
        arguments, faithful = masked(step.arguments)
    fields = {"call": step.tool.head}
    if step.keyed:
        fields["key"] = literal(list(step.key))
    else:
        fields["n"] = count(int(step.key[-1]))
    if step.scope.path:
        fields["scope"] = literal(list(step.scope.path))
    fields["args"] = arguments
    if not faithful:
        fields["mac"] = literal(b64(step.mac))
    if step.tool.undo_timeout is not None:
        fields["undo_timeout"] = literal(step.tool.undo_timeout)
    return fields, faithful


def recorded_key(facts: Mapping[str, Any]) -> StepKey:
    """Return the key of a step from the payload of its first record; empty when it has none."""
    key, path, call = facts.get("key"), facts.get("scope"), facts.get("call")
    if isinstance(key, list):
        return tuple(map(str, key))
    if not isinstance(call, dict) or "n" not in facts:
        return ()
    return ("derived", *map(str, path or ()), str(call.get("tool")), str(facts["n"]))


def taken(step: Step) -> dict[str, Fragment]:
    """Return what controls took for a step's call, each under its own name."""
    call = step.call
    if call is None or call.held is None:
        return {}
    found = {name: recorded(call) for name, recorded in step.saga.engine.gate.records}
    return {name: _encoded(facts) for name, facts in found.items() if facts}


def _encoded(facts: Mapping[str, Any]) -> Fragment:
    """Encode what a control records; it may have encoded all values itself."""
    if set(map(type, facts.values())) == {Fragment}:
        return composed(facts)
    return masked(facts)[0]


def recipe(tool: Tool, *, faithful: bool) -> dict[str, Fragment]:
    """Return what another process needs to derive the inverse once a prober has told the result."""
    template = tool.inverse.template if tool.inverse is not None else None
    if template is None:
        return {}
    kwargs = exact(template.kwargs, what=f"the template of {tool.name}")
    fields = {"recipe": compose(handler=literal(template.handler), kwargs=kwargs)}
    return fields if faithful else {**fields, "arguments_masked": _TRUE}


def inverse_of(inverse: Compensation, tool: str) -> Fragment:
    """Encode an inverse.

    Raises:
        SecretLeak, NotRecordable: its arguments cannot be recorded.
    """
    if inverse.nothing:
        return compose(none=masked(inverse.nothing)[0])
    kwargs = inverse.recorded
    if not isinstance(kwargs, Fragment):  # of a saga that was taken over they are known
        kwargs = inverse.recorded = exact(inverse.kwargs, what=f"{tool}'s inverse: kwargs")
    fields = {"kwargs": kwargs}
    if inverse.handler is not None:
        fields["handler"] = name(inverse.handler)
        handler = inverse.bound or process_handlers().compensators.find(inverse.handler)
        if handler is not None and (origin := _origin(handler)):
            fields["from"] = origin
    if inverse.description:
        fields["description"] = masked(inverse.description)[0]
    encoded = inverse.encoded = composed(fields)
    return encoded


@functools.lru_cache(maxsize=1024)
def _origin(handler: Handler) -> Fragment | None:
    """The distribution and version that a handler came with, where there is one; kept."""
    owner = handler.owner
    return literal(f"{owner.distribution} {owner.version}") if owner.distribution else None


def recorded_inverse(inverse: Compensation, tool: str) -> tuple[Fragment, AgentSagaError | None]:
    """Encode an inverse; what cannot be recorded of it is left out, and the reason returned."""
    if isinstance(inverse.encoded, Fragment):
        return inverse.encoded, None
    try:
        return inverse_of(inverse, tool), None
    except (SecretLeak, NotRecordable) as error:
        name = masked(inverse.handler or "")[0]
        return compose(handler=name, unrecorded=literal(error.code)), error


def b64(data: bytes) -> str:
    """Return bytes as the log writes them."""
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def error_text(error: BaseException | None) -> Mapping[str, str] | None:
    """Return an exception as plain data: its class, and its message cut to 500 characters."""
    if error is None:
        return None
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    return {"type": type(error).__name__, "message": text[:500]}
