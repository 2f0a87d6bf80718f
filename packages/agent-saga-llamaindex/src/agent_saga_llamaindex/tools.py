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

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.wrap import SagaTool
from agent_saga.errors import ConfigurationError
from agent_saga.kit.frameworks.declarations import (
    Declaration,
    Declarations,
    checked,
    from_policy,
    undeclared,
)
from agent_saga.kit.tools import tool as bare_tool
from agent_saga.plugins.callables import is_async_callable
from agent_saga_llamaindex import seams
from agent_saga_llamaindex.effects import KEY, Effect, effects_of, fitting

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

_NO_METADATA = ToolMetadata(description="", name="probe")
_THEIRS = frozenset(inspect.signature(FunctionTool.from_defaults).parameters) - {
    *("fn", "async_fn", "name"),
}


def saga_tool(
    fn: Callable[..., Any] | SagaTool[..., Any] | None = None,
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
            without it a decorator is returned.
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
    if fn is None:
        return functools.partial(
            saga_tool, semantics=semantics, compensate=compensate, kit=kit, name=name, **options
        )
    theirs = {option: options.pop(option) for option in tuple(options) if option in _THEIRS}
    if isinstance(fn, SagaTool):
        if semantics is not None or compensate is not None or options:
            raise ConfigurationError(
                f"{fn.tool.name} is declared already; its declaration cannot be given again."
            )
        effect, original = fn, fn.tool.fn
    else:
        given = {"semantics": semantics, "compensate": compensate, **options}
        effect = declared(fn, kit, {"name": name or fn.__name__, **given})
        original = fn
    shown = _without_key(original)
    function = Effect(effect, _injected(shown)).function(shown)
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
    name: str | None = None,
    **options: Any,
) -> FunctionTool:
    """Return a copy of a tool whose calls are steps of the boundary that they are made in.

    Args:
        tool: a `FunctionTool`.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the raw result.
        kit: the kit that the tool belongs to.
        name: how log, rules and reports name it; the tool's own name when not given.
        options: `asks_first=True` where the function waits for events only before its effect, and
            further options of `agent_saga.engine.tool.declare`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: it is wrapped already, it cannot be wrapped, or an option does not fit.
    """
    if is_wrapped(tool):
        raise ConfigurationError(f"{name_of(tool)} is a tool of agent-saga already.")
    given = {"semantics": semantics, "compensate": compensate, **options}
    given["name"] = name or name_of(tool)
    if semantics is None and compensate is None:
        declaration = from_policy(kit, given["name"])
        given.update({} if declaration is None else declaration.options)
    return _wrapped(tool, kit, given)


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
        ConfigurationError: a declaration names no tool, or a tool cannot be wrapped.
    """
    listed = getattr(tools, "to_tool_list", None)
    given, declarations = list(listed() if callable(listed) else tools), checked(declarations)
    check_named(given, declarations)
    found = {
        name_of(t): declarations.get(name_of(t)) or from_policy(kit, name_of(t)) for t in given
    }
    missing = [name_of(t) for t in given if not is_wrapped(t) and found[name_of(t)] is None]
    if missing:
        raise undeclared(list(dict.fromkeys(missing)))
    return [_as_declared(tool, found[name_of(tool)], kit) for tool in given]


def check_named(tools: Iterable[BaseTool], declarations: Declarations) -> None:
    """Refuse declarations that name no tool.

    Raises:
        ConfigurationError: so it is.
    """
    names = {name_of(tool) for tool in tools}
    idle = sorted(set(declarations) - names)
    if idle:
        raise ConfigurationError(
            f"There is no tool {', '.join(idle)}; the tools are {', '.join(sorted(names))}."
        )


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


def is_wrapped(tool: object) -> bool:
    """Say whether a tool's calls are steps already."""
    return bool(effects_of(tool))


def is_a_read(options: dict[str, Any]) -> bool:
    """Say whether options declare a tool that leaves nothing behind."""
    semantics = options.get("semantics")
    return semantics is not None and (
        ActionSemantics.parse(semantics) is ActionSemantics.REVERSIBLE
    )


def declared(
    fn: Callable[..., Any], kit: AgentKit | None, options: dict[str, Any]
) -> SagaTool[..., Any]:
    """Return a function as a tool of the engine; a read that failed has changed nothing."""
    given = dict(options)
    harmless = given.get("not_applied_on") or ()
    several = harmless if isinstance(harmless, tuple) else (harmless,)
    if given.pop("asks_first", False):
        given["not_applied_on"] = several = (*several, seams.WaitingForEvent)
    if is_a_read(given):
        given["not_applied_on"] = (*several, Exception)
        given.setdefault("idempotent", True)
    function = fitting(fn)
    return bare_tool(**given)(function) if kit is None else kit.safe_tool(function, **given)


def _as_declared(tool: BaseTool, declaration: Declaration | None, kit: AgentKit | None) -> BaseTool:
    if declaration is None or is_wrapped(tool):
        return tool
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
    return Effect(declared(function, kit, options), _injected(function)).function(function)


def _without_key(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as a model may see it: the idempotency key is the engine's to give."""
    signature = inspect.signature(fn)
    if KEY not in signature.parameters:
        return fn

    @functools.wraps(fn)
    def shown(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    left = [one for name, one in signature.parameters.items() if name != KEY]
    shown.__dict__["__signature__"] = signature.replace(parameters=left)
    shown.__annotations__ = {name: a for name, a in fn.__annotations__.items() if name != KEY}
    return shown


def _injected(fn: Callable[..., Any]) -> str:
    """Return the parameter that the framework fills with the workflow's context; empty if none."""
    probe = FunctionTool(fn=fn, metadata=_NO_METADATA)
    return probe.ctx_param_name or ""
