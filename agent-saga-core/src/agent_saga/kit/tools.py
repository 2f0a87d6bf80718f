"""`@tool` and what it shares with `AgentKit`: from a function to a wrapped tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.forms import name_of
from agent_saga.engine.tool import declare, known
from agent_saga.engine.wrap import SagaTool
from agent_saga.errors import ConfigurationError
from agent_saga.runtime.composition import Runtime, process_runtime

P = ParamSpec("P")
R = TypeVar("R")


def wrapped(
    fn: Callable[P, R], runtime: Runtime, kit: object, options: dict[str, Any]
) -> SagaTool[P, R]:
    """Declare a function as a tool and wrap it.

    Raises:
        ConfigurationError: it is wrapped already, or an option does not fit.
    """
    if isinstance(fn, SagaTool):
        raise ConfigurationError(
            f"{fn.tool.name} is a tool of agent-saga already.", fix="Wrap the function itself."
        )
    options = _with_policy(fn, runtime, known(options))
    return SagaTool(declare(fn, **options), kit=kit, outside=lambda: runtime.settings.outside)


def _with_policy(
    fn: Callable[..., Any], runtime: Runtime, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the options of a tool with what the gate's policy declares of it.

    Raises:
        ConfigurationError: code and policy declare different things.
    """
    policy = runtime.gate.policy
    found = None if policy is None else policy.tools.get(options.get("name") or name_of(fn))
    if found is None:
        return options
    given, inverse = options.get("semantics"), options.get("compensate")
    if given is not None and ActionSemantics.parse(given) is not found.semantics:
        raise ConfigurationError(
            f"The code declares {found.name!r} as {given}, the policy as {found.semantics.value}.",
            fix="Leave the semantics out of the code, or mend whichever is wrong.",
        )
    if inverse is not None and found.compensate is not None:
        raise ConfigurationError(
            f"The inverse of {found.name!r} is declared in the code and in the policy.",
            fix="Leave it out of one of them.",
        )
    return {**options, "semantics": found.semantics, "compensate": inverse or found.compensate}


def tool(
    semantics: ActionSemantics | str | None = None,
    *,
    compensate: object = None,
    name: str | None = None,
    **options: Any,
) -> Callable[[Callable[P, R]], SagaTool[P, R]]:
    """Declare the decorated function as a tool that belongs to no kit.

    Args:
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the result.
        name: how log, rules and reports name it; the function's name when not given.
        options: further options of `agent_saga.engine.tool.declare`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: an option does not fit.
    """
    if callable(semantics):
        raise ConfigurationError(
            "@tool was used without saying what the tool does to the world.",
            fix='Write @tool("REVERSIBLE"), @tool("COMPENSABLE") or @tool("IRREVERSIBLE").',
        )
    given = {"semantics": semantics, "compensate": compensate, "name": name, **options}

    def decorate(fn: Callable[P, R]) -> SagaTool[P, R]:
        return wrapped(fn, process_runtime(), None, given)

    return decorate
