"""Tools of CrewAI as steps: `wrap_tool`, `wrap_tools`, and `safe_tool` from a function.

Rules of this part:

- A wrapped tool is a copy of the tool, of its own class: name, description, argument and result
  schema, `result_as_answer`, `max_usage_count` and failure policy are the tool's own.
- Only the function behind it is replaced (`func`, or `_run` and `_arun` where a class brings its
  own), so the step sees the raw result.
- What an effect returns is never kept in CrewAI's cache: an equal call is another step, or the same
  one, as the saga says.
- An `idempotency_key` that the function takes is given by the engine: the model is not shown it,
  and what a model gives for it counts for nothing.
- A read that failed changed nothing and may run again.
- A tool that is wrapped already is not wrapped again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from crewai.tools import BaseTool
from crewai.tools import tool as crew_tool
from crewai.tools.base_tool import Tool

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.wrap import SagaTool
from agent_saga.errors import ConfigurationError
from agent_saga.kit.frameworks.declarations import (
    Declaration,
    Declarations,
    Declared,
    checked,
)
from agent_saga.kit.frameworks.declared import (
    by_policy,
    check_named,
    check_undeclared,
    each_declared,
    engine_options,
    engine_tool,
    told_first,
)
from agent_saga.kit.frameworks.functions import in_place_of, without_key
from agent_saga_crewai.asking import HumanAsked
from agent_saga_crewai.effects import Effect, effects_of, reporting

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

T = TypeVar("T", bound=BaseTool)
_OF_THE_TOOL = ("result_as_answer", "max_usage_count", "result_schema")


def wrap_tool(
    tool: T,
    *,
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    kit: AgentKit | None = None,
    timeout: float | None = None,
    name: str | None = None,
    **options: Any,
) -> T:
    """Return a copy of a tool whose calls are steps of the boundary that they are made in.

    Args:
        tool: any tool of CrewAI: made by its decorator, or of a class.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the raw result.
        kit: the kit that the tool belongs to.
        timeout: seconds for one attempt.
        name: how log, rules and reports name it; the tool's own name when not given.
        options: `asks_first=True` if all questions of `ask_human` in the tool come before its
            effect; further options of `agent_saga.engine.tool.declare`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: it is wrapped already, or an option does not fit.

    Outside a boundary it runs as the bare tool with one warning; an IRREVERSIBLE one is refused.
    """
    if is_wrapped(tool):
        raise ConfigurationError(f"{tool.name} is a tool of agent-saga already.")
    given = {"semantics": semantics, "compensate": compensate, "timeout": timeout, **options}
    return _wrapped(tool, kit, {"name": name or tool.name, **given})


def wrap_tools(
    tools: Iterable[BaseTool], declarations: Declarations, *, kit: AgentKit | None = None
) -> list[BaseTool]:
    """Return tools as steps, each as it is declared.

    Args:
        tools: tools of CrewAI; those that are wrapped already stay as they are.
        declarations: one for each of the others, by name.
        kit: the kit that they belong to.

    Raises:
        UndeclaredTool: some have no declaration; the error names all of them.
        ConfigurationError: a declaration names no tool, or different tools have one name.
    """
    given, declarations = list(tools), checked(declarations)
    check_named([tool.name for tool in given], declarations)
    return wrapped_all(given, declarations, kit)


def wrapped_all(
    tools: Iterable[BaseTool], declared: Declared, kit: AgentKit | None
) -> list[BaseTool]:
    """Return tools as steps, as they are declared by the code or the policy of the kit's gate.

    Raises:
        UndeclaredTool: some have no declaration; the error names all of them.
        ConfigurationError: different tools have one name.
    """
    return [
        tool
        if declaration is None
        else _wrapped(tool, kit, {"name": tool.name, **declaration.options})
        for tool, declaration in each_declared(
            tools,
            declared,
            kit,
            name=lambda tool: tool.name,
            wrapped=is_wrapped,
            behind=behind,
        )
    ]


def behind(tool: BaseTool) -> object:
    """Return what tells a tool from others of its name: what it calls.

    Tools of a class are one where all that the class added to CrewAI's own is equal. A tool of an
    MCP server is made anew whenever an agent executes a task; CrewAI puts the server
    into its name.
    """
    if type(tool).__module__.startswith("crewai.tools.mcp_"):
        return type(tool)
    if isinstance(tool, Tool):
        return tool.func
    private = set(type(tool).__private_attributes__) - set(BaseTool.__private_attributes__)
    own = (set(type(tool).model_fields) - set(BaseTool.model_fields)) | private
    return type(tool), {name: getattr(tool, name, None) for name in own}


def wrap_in_place(tool: BaseTool, declaration: Declaration, kit: AgentKit | None) -> None:
    """Make a tool's calls steps where it is: a tool that an agent got only while it runs."""
    options = with_defaults({"name": tool.name, **declaration.options})
    _replace(tool, tool, lambda fn: declared(fn, kit, options))


def safe_tool(
    fn: Callable[..., Any] | SagaTool[..., Any],
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    *,
    kit: AgentKit | None = None,
    **options: Any,
) -> BaseTool:
    """Return a tool of CrewAI made from a function, whose calls are steps.

    Args:
        fn: a function or coroutine function with a docstring and annotations; or one that is
            declared already, with `@kit.tool(…)`, and then takes no further options but CrewAI's.
        semantics: as for `wrap_tool`.
        compensate: as for `wrap_tool`.
        kit: the kit that the tool belongs to.
        options: as for `wrap_tool`, and CrewAI's `result_as_answer`, `max_usage_count` and
            `result_schema`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: an option does not fit.
    """
    own = {name: options.pop(name) for name in _OF_THE_TOOL if name in options}
    if isinstance(fn, SagaTool):
        check_undeclared(fn, semantics, compensate, options)
        made, ready = _made_from(fn.tool.fn, fn.tool.name, own), fn
        return _copied(made, lambda _: ready)
    made = _made_from(fn, options.pop("name", None), own)
    given = {"semantics": semantics, "compensate": compensate, "name": made.name, **options}
    return _copied(made, lambda _: declared(fn, kit, with_defaults(given)))


def saga_tool(
    fn: Callable[..., Any] | SagaTool[..., Any] | ActionSemantics | str | None = None,
    *,
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    kit: AgentKit | None = None,
    **options: Any,
) -> Any:
    """Make a tool of CrewAI from a function, whose calls are steps.

    Args:
        fn: a function or coroutine function, or one that is declared already, with `@kit.tool(…)`;
            without it a decorator is returned. `@saga_tool("REVERSIBLE")` is such a decorator, too.
        semantics: as for `wrap_tool`.
        compensate: as for `wrap_tool`.
        kit: the kit that the tool belongs to.
        options: as for `safe_tool`.

    Raises:
        ConfigurationError: nothing says what the tool does, or two things do.
    """
    function, semantics = told_first(fn, semantics)
    if function is None:
        return functools.partial(
            safe_tool, semantics=semantics, compensate=compensate, kit=kit, **options
        )
    return safe_tool(function, semantics, compensate, kit=kit, **options)


def is_wrapped(tool: Any) -> bool:
    """Say whether a tool's calls are steps already."""
    return bool(effects_of(tool))


def _made_from(fn: Callable[..., Any], name: str | None, own: dict[str, Any]) -> Tool[..., Any]:
    if not inspect.getdoc(fn):
        raise ConfigurationError(
            f"{name or getattr(fn, '__name__', fn)} has no docstring, which a model is shown."
        )
    shown = without_key(fn)
    made: Tool[..., Any] = crew_tool(name or fn.__name__, **own)(shown)
    return made


def _wrapped(tool: T, kit: AgentKit | None, options: dict[str, Any]) -> T:
    given = with_defaults(by_policy(kit, options))
    return _copied(tool, lambda fn: declared(fn, kit, given))


def with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a tool for the engine, which knows nothing of questions and reads."""
    return engine_options(options, asks=HumanAsked)


def declared(
    fn: Callable[..., Any], kit: AgentKit | None, options: dict[str, Any]
) -> SagaTool[..., Any]:
    """Return a function as a tool of the engine.

    Raises:
        ConfigurationError: it is declared already.
    """
    return engine_tool(fn if isinstance(fn, SagaTool) else reporting(fn), kit, options)


Declare = Callable[[Callable[..., Any]], SagaTool[..., Any]]


def _copied(tool: T, declare: Declare) -> T:
    """Return a copy of a tool with declared functions in the place of its own."""
    copy = tool.model_copy()
    _replace(tool, copy, declare)
    return copy


def _replace(tool: BaseTool, copy: BaseTool, declare: Declare) -> None:
    """Put declared functions into a copy, in the place of the tool's own."""

    def step(fn: Callable[..., Any]) -> Callable[..., Any]:
        effect = Effect(declare(fn), answers=tool.result_as_answer)
        if not effect.tool.tool.reversible:
            copy.cache_function = _never
        return in_place_of(fn, effect)

    if isinstance(tool, Tool):
        copy.func = step(tool.func)  # type: ignore[attr-defined]
        return
    for name in ("_run", "_arun"):
        if getattr(type(tool), name) is not getattr(BaseTool, name):
            object.__setattr__(copy, name, step(getattr(tool, name)))


def _never(_args: Any = None, _result: Any = None) -> bool:
    """Keep nothing in CrewAI's cache."""
    return False
