"""Tools of AutoGen as steps: `saga_tool` for functions, `wrap_tool` for tools that there are.

Rules of this part:

- The step is at the function of a `FunctionTool`, in the context of its caller: AutoGen itself runs
  synchronous functions in threads that know nothing of it. Of any other tool the step is its
  `run_json`.
- Name, description and schema are the tool's own. An `idempotency_key` that the function of a
  `saga_tool` takes is given by the engine: the model is not shown it.
- Arguments that do not fit the schema were no call.
- A read that failed changed nothing and may run again.
- A tool that is wrapped already is not wrapped again.
- A tool of `saga_agent` does not run outside a boundary, unless it is a read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.tools import BaseTool, FunctionTool

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
from agent_saga.kit.frameworks.functions import without_key
from agent_saga_autogen import seams
from agent_saga_autogen.asking import HumanAsked
from agent_saga_autogen.effects import Effect
from agent_saga_autogen.stepping import FunctionStep, JsonStep, StepTool, forward

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

_THEIRS = frozenset({"description", "global_imports", "strict"})
RUNNERS = (AgentTool, TeamTool)
"""The tools that run an agent or a team; see `nested`."""


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
        options: `description` (the docstring when not given), `strict` and `global_imports` as
            `FunctionTool` takes them, and those of `agent_saga.engine.tool.declare`.

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
        step = function
    else:
        given = {"semantics": semantics, "compensate": compensate, **options}
        step = declared(function, kit, {"name": name or function.__name__, **given})
    shown = without_key(step.tool.fn)
    theirs.setdefault("description", inspect.getdoc(step.tool.fn) or "")
    return FunctionStep(Effect(step), shown, name=name or step.tool.name, **theirs)


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
    tool: BaseTool[Any, Any],
    *,
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    kit: AgentKit | None = None,
    timeout: float | None = None,
    name: str | None = None,
    **options: Any,
) -> BaseTool[Any, Any]:
    """Return a tool like another one, whose calls are steps of the boundary they are made in.

    Args:
        tool: a `FunctionTool`, or a tool of any other class.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the raw result.
        kit: the kit that the tool belongs to.
        timeout: seconds for one attempt.
        name: how log, rules and reports name it; the tool's own name when not given.
        options: `asks_first=True` where the tool asks a human (`ask_human`) only before its effect,
            and further options of `agent_saga.engine.tool.declare`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: it is wrapped already, it cannot be wrapped, or an option does not fit.
    """
    if is_wrapped(tool):
        raise ConfigurationError(f"{tool.name} is a tool of agent-saga already.")
    given = {"semantics": semantics, "compensate": compensate, "timeout": timeout, **options}
    given["name"] = name or tool.name
    return _wrapped(tool, kit, by_policy(kit, given))


def wrap_tools(
    tools: Iterable[BaseTool[Any, Any]], declarations: Declarations, *, kit: AgentKit | None = None
) -> list[BaseTool[Any, Any]]:
    """Return tools as steps, each as it is declared.

    Args:
        tools: tools; those that are wrapped already stay as they are.
        declarations: one for each of the others, by name.
        kit: the kit that they belong to.

    Raises:
        UndeclaredTool: some have no declaration; the error names all of them.
        ConfigurationError: a declaration names no tool, different tools have one name, or a tool
            cannot be wrapped.
    """
    given, declarations = list(tools), checked(declarations)
    check_named([tool.name for tool in given], declarations)
    found = each_declared(
        given,
        declarations,
        kit,
        name=lambda t: t.name,
        wrapped=is_wrapped,
        behind=seams.behind,
    )
    return [_as_declared(tool, declaration, kit) for tool, declaration in found]


def wrap_as(
    tool: BaseTool[Any, Any], declaration: Declaration, kit: AgentKit | None
) -> BaseTool[Any, Any]:
    """Return a tool of an agent as a step, as it is declared; refused outside a boundary."""
    return _wrapped(tool, kit, within_a_boundary(tool.name, declaration))


def within_a_boundary(name: str, declaration: Declaration) -> dict[str, Any]:
    """Return the options of a tool of an agent: it is refused outside a boundary, if no read."""
    options = {"name": name, **declaration.options}
    return options if is_a_read(options) else {"outside": "refuse", **options}


def is_wrapped(tool: object) -> bool:
    """Say whether a tool's calls are steps already."""
    return isinstance(tool, StepTool)


def declared(
    fn: Callable[..., Any], kit: AgentKit | None, options: dict[str, Any]
) -> SagaTool[..., Any]:
    """Return a function as a tool of the engine; a read that failed has changed nothing."""
    return engine_tool(fn, kit, engine_options(options, asks=HumanAsked))


def _as_declared(
    tool: BaseTool[Any, Any], declaration: Declaration | None, kit: AgentKit | None
) -> BaseTool[Any, Any]:
    if declaration is None or is_wrapped(tool):
        return tool
    return _wrapped(tool, kit, {"name": tool.name, **declaration.options})


def _wrapped(
    tool: BaseTool[Any, Any], kit: AgentKit | None, options: dict[str, Any]
) -> BaseTool[Any, Any]:
    if isinstance(tool, RUNNERS):
        raise ConfigurationError(
            f"{tool.name} runs an agent or a team, and is no step: what runs inside it is.",
            fix="Give it to the agent as it is, and that agent to saga_agent.",
        )
    found = seams.function_of(tool) if isinstance(tool, FunctionTool) else None
    if found is None:
        return JsonStep(Effect(declared(forward, kit, options)), tool)
    function, made_of = found
    effect = Effect(declared(function, kit, options))
    return FunctionStep(effect, function, name=tool.name, description=tool.description, **made_of)
