"""Tools of LlamaIndex as steps: `saga_tool` for functions, `wrap_tool` for tools that there are.

Rules of this part:

- A wrapped tool is a copy of the tool, of its class: metadata, schema, callbacks, partial
  parameters and the parameter that gets the workflow's context are the tool's own.
- The step is at the function, below everything that the framework does with its errors.
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

from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata
from llama_index.core.tools.types import BaseToolAsyncAdapter

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
from agent_saga.kit.frameworks.functions import fitting, in_place_of, without_key
from agent_saga.plugins.callables import is_async_callable
from agent_saga_llamaindex import seams
from agent_saga_llamaindex.effects import Effect, effects_of

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

_NO_METADATA = ToolMetadata(description="", name="probe")
_THEIRS = frozenset(inspect.signature(FunctionTool.from_defaults).parameters) - {
    *("fn", "async_fn", "name"),
}


def saga_tool(
    fn: Callable[..., Any] | SagaTool[..., Any] | ActionSemantics | str | None = None,
    *,
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    kit: AgentKit | None = None,
    name: str | None = None,
    **options: Any,
) -> Any:
    """Make a `FunctionTool` from a function, whose calls are steps.

    Args:
        fn: a function or coroutine function, or one that is declared already, with `@kit.tool(…)`;
            without it a decorator is returned. `@saga_tool("REVERSIBLE")` is such a decorator, too.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the raw result.
        kit: the kit that the tool belongs to.
        name: the tool's name; the function's when not given.
        options: every other option of `FunctionTool.from_defaults` (`description`, `fn_schema`,
            `return_direct`, `callback`, `partial_params`, …), and those of
            `agent_saga.engine.tool.declare`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: an option does not fit.
    """
    function, semantics = told_first(fn, semantics)
    if function is None:
        return functools.partial(
            saga_tool, semantics=semantics, compensate=compensate, kit=kit, name=name, **options
        )
    theirs = {option: options.pop(option) for option in tuple(options) if option in _THEIRS}
    if isinstance(function, SagaTool):
        check_undeclared(function, semantics, compensate, options)
        effect, original = function, function.tool.fn
    else:
        given = {"semantics": semantics, "compensate": compensate, **options}
        effect = declared(function, kit, {"name": name or function.__name__, **given})
        original = function
    shown = without_key(original)
    function = in_place_of(shown, Effect(effect, _injected(shown)))
    return FunctionTool.from_defaults(function, name=name or effect.tool.name, **theirs)


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
        tool: a `FunctionTool`.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the raw result.
        kit: the kit that the tool belongs to.
        timeout: seconds for one attempt.
        name: how log, rules and reports name it; the tool's own name when not given.
        options: `asks_first=True` where the function waits for events only before its effect, and
            further options of `agent_saga.engine.tool.declare`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: it is wrapped already, it cannot be wrapped, or an option does not fit.
    """
    if is_wrapped(tool):
        raise ConfigurationError(f"{name_of(tool)} is a tool of agent-saga already.")
    given = {"semantics": semantics, "compensate": compensate, "timeout": timeout, **options}
    return _wrapped(tool, kit, by_policy(kit, {"name": name or name_of(tool), **given}))


def wrap_tools(
    tools: Iterable[BaseTool] | Any, declarations: Declarations, *, kit: AgentKit | None = None
) -> list[BaseTool]:
    """Return tools as steps, each as it is declared.

    Args:
        tools: tools, or a tool spec: whatever has a `to_tool_list()`. Those that are wrapped
            already stay as they are.
        declarations: one for each of the others, by name.
        kit: the kit that they belong to.

    Raises:
        UndeclaredTool: some have no declaration; the error names all of them.
        ConfigurationError: a declaration names no tool, different tools have one name, or a tool
            cannot be wrapped.
    """
    listed = getattr(tools, "to_tool_list", None)
    given, declarations = list(listed() if callable(listed) else tools), checked(declarations)
    check_named(map(name_of, given), declarations)
    return [
        tool if declaration is None else _as_declared(tool, declaration, kit)
        for tool, declaration in each_declared(
            given, declarations, kit, name=name_of, wrapped=is_wrapped, behind=behind
        )
    ]


def wrap_as(tool: BaseTool, declaration: Declaration, kit: AgentKit | None) -> BaseTool:
    """Return a tool of an agent as a step, as it is declared; refused outside a boundary.

    Raises:
        ConfigurationError: it cannot be wrapped, and is no read.
    """
    if not isinstance(tool, FunctionTool) and is_a_read(declaration.options):
        return tool
    options = {"name": name_of(tool), **declaration.options}
    return _wrapped(tool, kit, options if is_a_read(options) else {"outside": "refuse", **options})


def name_of(tool: BaseTool) -> str:
    """Return a tool's name."""
    return str(tool.metadata.get_name())


def behind(tool: BaseTool) -> object:
    """Return what tells a tool from others of its name: what it calls.

    A tool that is synchronous alone is put into a new object by the framework at each turn.
    """
    if isinstance(tool, BaseToolAsyncAdapter):
        return tool.base_tool
    return tool.real_fn if isinstance(tool, FunctionTool) else tool


def is_wrapped(tool: object) -> bool:
    """Say whether a tool's calls are steps already."""
    return bool(effects_of(tool))


def declared(
    fn: Callable[..., Any], kit: AgentKit | None, options: dict[str, Any]
) -> SagaTool[..., Any]:
    """Return a function as a tool of the engine; a read that failed has changed nothing."""
    given = engine_options(options, asks=seams.WaitingForEvent)
    return engine_tool(fn if isinstance(fn, SagaTool) else fitting(fn), kit, given)


def _as_declared(tool: BaseTool, declaration: Declaration, kit: AgentKit | None) -> BaseTool:
    if not isinstance(tool, FunctionTool) and is_a_read(declaration.options):
        return tool
    return _wrapped(tool, kit, {"name": name_of(tool), **declaration.options})


def _wrapped(tool: BaseTool, kit: AgentKit | None, options: dict[str, Any]) -> FunctionTool:
    """Return a copy of a tool with steps in the place of its functions.

    Raises:
        ConfigurationError: its functions cannot be replaced.
    """
    made = None
    if isinstance(tool, FunctionTool):
        function, beside = tool.real_fn, seams.own_async(tool)
        step = _step(function, kit, options)
        if is_async_callable(function):
            made = seams.with_functions(tool, None, step)
        else:
            more = None if beside is None else _step(beside, kit, options)
            made = seams.with_functions(tool, step, more)
    if made is None:
        raise ConfigurationError(
            f"{name_of(tool)} ({type(tool).__name__}) cannot be wrapped: it is carried out by its "
            "class, and not by a function of a FunctionTool.",
            fix="Declare it read_only() if it changes nothing; else do it in a function and make "
            "that a saga_tool.",
        )
    return made


def _step(
    function: Callable[..., Any], kit: AgentKit | None, options: dict[str, Any]
) -> Callable[..., Any]:
    return in_place_of(function, Effect(declared(function, kit, options), _injected(function)))


def _injected(fn: Callable[..., Any]) -> str:
    """Return the parameter that the framework fills with the workflow's context; empty if none."""
    probe = FunctionTool(fn=fn, metadata=_NO_METADATA)
    return probe.ctx_param_name or ""
