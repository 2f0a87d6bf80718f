"""Tools of the SDK as steps: `saga_tool` in the place of `function_tool`, `wrap_tool` for others.

Rules of this part:

- A wrapped tool is a copy of the tool, of its class: name, description, schema, guardrails,
  approvals and what it does with errors are the tool's own.
- The step is at the function, below the framework's error handling. In `saga_tool` that is the
  function itself, in `wrap_tool` what the framework calls in its place.
- An `idempotency_key` that the function of a `saga_tool` takes is given by the engine: the model is
  not shown it.
- A read that failed changed nothing and may run again.
- A tool that is wrapped already is not wrapped again.
- A tool of `saga_agent` does not run outside a boundary, unless it is a read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from agents import FunctionTool, ModelBehaviorError, function_tool

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.wrap import SagaTool
from agent_saga.errors import ConfigurationError
from agent_saga.kit.frameworks.declarations import Declaration, Declarations, checked
from agent_saga.kit.frameworks.declared import (
    by_policy,
    check_named,
    check_undeclared,
    each_declared,
    engine_options,
    engine_tool,
    is_a_read,
    told_first,
)
from agent_saga.kit.frameworks.functions import in_place_of, without_key
from agent_saga_openai_agents import bare, seams, servers
from agent_saga_openai_agents.calls import calling, defaults_of
from agent_saga_openai_agents.effects import Effect
from agent_saga_openai_agents.invoking import Invoker, patiently
from agent_saga_openai_agents.servers import ServerToolFailed

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

bare.listen()

_THEIRS = frozenset(inspect.signature(function_tool).parameters) - {"func", "timeout"}


def saga_tool(
    fn: Callable[..., Any] | SagaTool[..., Any] | ActionSemantics | str | None = None,
    *,
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    kit: AgentKit | None = None,
    **options: Any,
) -> Any:
    """Make a tool from a function, as `function_tool` does, whose calls are steps.

    Args:
        fn: a function or coroutine function, or one that is declared already, with `@kit.tool(…)`;
            without it a decorator is returned. `@saga_tool("REVERSIBLE")` is such a decorator, too.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the raw result.
        kit: the kit that the tool belongs to.
        options: every option of `function_tool` (`failure_error_function`, `needs_approval`,
            `tool_input_guardrails`, …), and those of `agent_saga.engine.tool.declare`. `timeout`
            is the framework's, and only for coroutine functions, as there.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: an option does not fit.
    """
    function, semantics = told_first(fn, semantics)
    if function is None:
        return functools.partial(
            saga_tool, semantics=semantics, compensate=compensate, kit=kit, **options
        )
    theirs = {name: options.pop(name) for name in tuple(options) if name in _THEIRS}
    timeout = options.pop("timeout", None)
    if timeout is not None:
        theirs["timeout"] = timeout
    declared = _declared(function, kit, options, theirs, semantics, compensate)
    original = declared.tool.fn
    shown = without_key(original)
    effect = Effect(declared, _injected(shown))
    made = function_tool(
        in_place_of(shown, effect), **{"name_override": declared.tool.name, **theirs}
    )
    return _invoked(made, effect)


def safe_tool(
    fn: Callable[..., Any] | SagaTool[..., Any],
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    *,
    kit: AgentKit | None = None,
    **options: Any,
) -> FunctionTool:
    """Make a tool from a function; the same as `saga_tool`, by the name that all packages have."""
    made: FunctionTool = saga_tool(
        fn, semantics=semantics, compensate=compensate, kit=kit, **options
    )
    return made


def wrap_tool(
    tool: FunctionTool,
    *,
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    kit: AgentKit | None = None,
    timeout: float | None = None,
    name: str | None = None,
    **options: Any,
) -> FunctionTool:
    """Return a copy of a tool whose calls are steps of the boundary that they are made in.

    Args:
        tool: a `FunctionTool`, made by `function_tool` or by hand.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the raw result.
        kit: the kit that the tool belongs to.
        timeout: seconds for one attempt.
        name: how log, rules and reports name it; the tool's own name when not given.
        options: further options of `agent_saga.engine.tool.declare`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: it is wrapped already, it is no `FunctionTool`, or an option does not
            fit.
    """
    if not isinstance(tool, FunctionTool):
        raise ConfigurationError(
            f"{type(tool).__name__} cannot be wrapped: the provider or the framework carries it "
            "out, and nothing of agent-saga is called.",
            fix="Do it in a function of yours and make that a saga_tool.",
        )
    if is_wrapped(tool):
        raise ConfigurationError(f"{tool.name} is a tool of agent-saga already.")
    given = {"semantics": semantics, "compensate": compensate, "timeout": timeout, **options}
    return _wrapped(tool, kit, by_policy(kit, {"name": name or tool.name, **given}))


def wrap_tools(
    tools: Iterable[FunctionTool], declarations: Declarations, *, kit: AgentKit | None = None
) -> list[FunctionTool]:
    """Return tools as steps, each as it is declared.

    Args:
        tools: tools of the SDK; those that are wrapped already stay as they are.
        declarations: one for each of the others, by name.
        kit: the kit that they belong to.

    Raises:
        UndeclaredTool: some have no declaration; the error names all of them.
        ConfigurationError: a declaration names no tool, or different tools have one name.
    """
    given, declarations = list(tools), checked(declarations)
    check_named([tool.name for tool in given], declarations)
    return [
        tool
        if declaration is None
        else _wrapped(tool, kit, {"name": tool.name, **declaration.options})
        for tool, declaration in each_declared(
            given,
            declarations,
            kit,
            name=lambda tool: tool.name,
            wrapped=is_wrapped,
            behind=seams.behind,
        )
    ]


def wrap_as(tool: FunctionTool, declaration: Declaration, kit: AgentKit | None) -> FunctionTool:
    """Return a tool of an agent as a step, as it is declared; refused outside a boundary."""
    options = {"name": tool.name, **declaration.options}
    return _wrapped(tool, kit, options if is_a_read(options) else {"outside": "refuse", **options})


def is_wrapped(tool: object) -> bool:
    """Say whether a tool's calls are steps already."""
    return isinstance(getattr(tool, "on_invoke_tool", None), Invoker)


def _declared(
    fn: Any,
    kit: AgentKit | None,
    options: dict[str, Any],
    theirs: dict[str, Any],
    semantics: ActionSemantics | str | None,
    compensate: object,
) -> SagaTool[..., Any]:
    if isinstance(fn, SagaTool):
        check_undeclared(fn, semantics, compensate, options)
        return fn
    name = options.pop("name", None) or theirs.get("name_override")
    given = {"semantics": semantics, "compensate": compensate, "name": name, **options}
    return declared(fn, kit, given)


def declared(
    fn: Callable[..., Any], kit: AgentKit | None, options: dict[str, Any]
) -> SagaTool[..., Any]:
    """Return a function as a tool of the engine; a read that failed has changed nothing."""
    return engine_tool(fn, kit, engine_options(options, harmless=(ArgumentsUnfit,)))


def _injected(fn: Callable[..., Any]) -> str:
    """Return the parameter that the framework fills with the context: a first one typed so."""
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    if first is None or first.annotation is inspect.Parameter.empty:
        return ""
    text = first.annotation if isinstance(first.annotation, str) else repr(first.annotation)
    return first.name if "RunContextWrapper" in text or "ToolContext" in text else ""


def _invoked(tool: FunctionTool, effect: Effect) -> FunctionTool:
    """Return a copy of a tool whose calls are named, and end past the framework's handlers."""
    defaults = defaults_of(tool.params_json_schema)
    policy = tool.needs_approval
    invoker = Invoker(tool.on_invoke_tool, tool.name, effect, defaults, policy)
    return seams.copied(tool, on_invoke_tool=invoker, needs_approval=invoker.needs_approval)


def _wrapped(tool: FunctionTool, kit: AgentKit | None, options: dict[str, Any]) -> FunctionTool:
    """Return a copy of a tool with a step in the place of what its invoker calls."""
    return with_effect(tool, effect_of(kit, options))


def effect_of(kit: AgentKit | None, options: dict[str, Any]) -> Effect:
    """Return the step of tools whose function is not seen, as options declare it."""
    return Effect(declared(_forward, kit, options))


def with_effect(tool: FunctionTool, effect: Effect, *, remote: bool = False) -> FunctionTool:
    """Return a copy of a tool whose calls are a step.

    Args:
        tool: the tool.
        effect: the step.
        remote: it is a tool of an MCP server; see `servers`.

    Raises:
        ConfigurationError: this version of the framework would hide how its calls end.
    """
    invoker: Any = tool.on_invoke_tool
    implementation = seams.implementation(invoker)
    if implementation is None and seams.swallows(invoker):
        raise ConfigurationError(
            f"{tool.name} cannot be wrapped: this version of the SDK does not show how its calls "
            "end, and would hide its errors.",
            fix="Make the function a saga_tool.",
        )
    forward = implementation or invoker
    if seams.in_a_thread(invoker):
        forward = functools.partial(patiently, forward)

    async def step(ctx: Any, text: str) -> Any:
        answers: list[Any] = []
        value: Any = None
        try:
            value = await effect.arun((ctx, text, forward, answers), {})
        except ServerToolFailed:
            if not answers:
                raise
        if answers:
            return answers[-1]
        return servers.shown(value) if remote else value

    replaced = step if implementation is None else seams.with_implementation(invoker, step)
    return _invoked(seams.copied(tool, on_invoke_tool=replaced), effect)


async def _forward(
    ctx: Any, text: str, implementation: seams.Implementation, answers: list[Any]
) -> Any:
    """Do what a tool does; what it says of its own failure counts as one.

    Raises:
        ServerToolFailed: so the answer of an MCP server says.
        ArgumentsUnfit: what the model chose does not fit; the tool's function was not called.
    """
    try:
        result = await implementation(ctx, text)
    except ModelBehaviorError as error:
        if seams.is_all_theirs(error):
            raise ArgumentsUnfit(str(error)) from error
        raise
    answers.append(result)
    call = calling.get()
    if call is None:
        return result
    if call.failed is not None:
        raise call.failed
    return result if call.result is None else call.result


class ArgumentsUnfit(ModelBehaviorError):
    """What the model chose does not fit the tool, which was not called."""
