"""Tools of LangChain as steps: `wrap_tool`, `wrap_tools`, and `safe_tool` from a function.

Rules of this part:

- A wrapped tool is a copy of the tool, of a subclass of its class: name, description, argument
  schema, artifact, injected arguments and `return_direct` are the tool's own.
- Only the function behind it is replaced (`func` and `coroutine`, or `_run` and `_arun` where a
  class brings its own), so the step sees the raw result.
- A class that brings its own way to be called (`invoke`, `run`, …) may do everything there, and no
  function behind it would be seen: it is refused, unless the tool is a read.
- A call that the gate refuses had no effect and is no failure: the model is told rule and reason.
  What says that the program or the saga is at fault leaves the run as an error.
- An `idempotency_key` that the function takes is given by the engine: the model is not shown it,
  and what a model gives for it counts for nothing.
- A read that failed, or that was interrupted, changed nothing and may run again.
- A tool that is wrapped already is not wrapped again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.errors import GraphInterrupt

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.wrap import SagaTool
from agent_saga.errors import ConfigurationError, RefusedError
from agent_saga.kit.frameworks.declarations import Declaration, Declarations, checked
from agent_saga.kit.frameworks.declared import (
    by_policy,
    check_named,
    check_undeclared,
    each_declared,
    engine_options,
    engine_tool,
)
from agent_saga.kit.frameworks.failures import FAULTS, told
from agent_saga.kit.frameworks.functions import effects_of, in_place_of, without_key
from agent_saga_langgraph.effects import Effect, announced, calling

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

T = TypeVar("T", bound=BaseTool)

_NO_SUCH_TOOL = (
    "What a middleware brings at run time is declared to SagaMiddleware(kit, tools={…}), listed "
    "last; what a function calls itself, with wrap_tool(…)."
)
_FRAMEWORKS: Final = ("langchain", "langchain_core", "langgraph")
_WAYS: Final = (
    *("invoke", "ainvoke", "run", "arun", "__call__"),
    *("batch", "abatch", "batch_as_completed", "abatch_as_completed"),
    *("stream", "astream", "transform", "atransform"),
)
_classes: dict[type[BaseTool], type[BaseTool]] = {}


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
        tool: any tool of LangChain.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means COMPENSABLE.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the raw result.
        kit: the kit that the tool belongs to.
        timeout: seconds for one attempt.
        name: how log, rules and reports name it; the tool's own name when not given.
        options: `asks_first=True` if all interrupts in the tool come before its effect; further
            options of `agent_saga.engine.tool.declare`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: it is wrapped already, or an option does not fit.

    Outside a boundary it runs as the bare tool with one warning; an IRREVERSIBLE one is refused.
    """
    if is_wrapped(tool):
        raise ConfigurationError(f"{tool.name} is a tool of agent-saga already.")
    given = {"semantics": semantics, "compensate": compensate, "timeout": timeout, **options}
    given["name"] = name or tool.name
    return _wrapped(tool, kit, given)


def wrap_tools(
    tools: Iterable[BaseTool], declarations: Declarations, *, kit: AgentKit | None = None
) -> list[BaseTool]:
    """Return tools as steps, each as it is declared.

    Args:
        tools: tools of LangChain; those that are wrapped already stay as they are.
        declarations: one for each of the others, by name.
        kit: the kit that they belong to.

    Raises:
        UndeclaredTool: some have no declaration; the error names all of them.
        ConfigurationError: a declaration names no tool, or different tools have one name.
    """
    given, declarations = list(tools), checked(declarations)
    check_named([tool.name for tool in given], declarations, _NO_SUCH_TOOL)
    return [
        tool if declaration is None else wrap_as(tool, declaration, kit)
        for tool, declaration in each_declared(
            given,
            declarations,
            kit,
            name=lambda tool: tool.name,
            wrapped=is_wrapped,
            behind=behind,
        )
    ]


def behind(tool: BaseTool) -> object:
    """Return what tells a tool from others of its name: what it calls."""
    return getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool


def wrap_as(tool: T, declaration: Declaration, kit: AgentKit | None) -> T:
    """Return a tool as a step, as it is declared."""
    return _wrapped(tool, kit, {"name": tool.name, **declaration.options})


def safe_tool(
    fn: Callable[..., Any] | SagaTool[..., Any],
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    *,
    kit: AgentKit | None = None,
    **options: Any,
) -> BaseTool:
    """Return a tool of LangChain made from a function, whose calls are steps.

    Args:
        fn: a function or coroutine function with a docstring and annotations; or one that is
            declared already, with `@kit.tool(…)`, and then takes no further options.
        semantics: as for `wrap_tool`.
        compensate: as for `wrap_tool`.
        kit: the kit that the tool belongs to.
        options: as for `wrap_tool`.

    Raises:
        UndeclaredSemantics: nothing says what the tool does to the world.
        ConfigurationError: an option does not fit.
    """
    if not isinstance(fn, SagaTool):
        tool = _made_from(fn, options.pop("name", None))
        given = {"semantics": semantics, "compensate": compensate, "name": tool.name, **options}
        return _replaced(tool, lambda _: engine_tool(fn, kit, with_defaults(given)))
    check_undeclared(fn, semantics, compensate, options)
    return _replaced(_made_from(fn.tool.fn, fn.tool.name), lambda _: fn)


def is_wrapped(tool: BaseTool) -> bool:
    """Say whether a tool's calls are steps already."""
    return type(tool) in _classes.values()


def is_read(tool: BaseTool) -> bool:
    """Say whether a wrapped tool leaves nothing behind."""
    return all(effect.tool.tool.reversible for effect in _effects(tool))


def _effects(tool: BaseTool) -> list[Effect]:
    return effects_of(tool, ("func", "coroutine", "_run", "_arun"))


def _made_from(fn: Callable[..., Any], name: str | None) -> StructuredTool:
    how = "coroutine" if inspect.iscoroutinefunction(fn) else "func"
    shown = without_key(fn)
    return StructuredTool.from_function(**{how: shown}, name=name)  # type: ignore[arg-type]


def _wrapped(tool: T, kit: AgentKit | None, options: dict[str, Any]) -> T:
    given = with_defaults(by_policy(kit, options))
    return _replaced(tool, lambda fn: engine_tool(fn, kit, given))


def with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a tool for the engine, which knows nothing of interrupts and reads."""
    return engine_options(options, asks=GraphInterrupt)


def _replaced(tool: T, declare: Callable[[Callable[..., Any]], SagaTool[..., Any]]) -> T:
    """Return a copy of a tool with declared functions in the place of its own.

    Raises:
        ConfigurationError: what it does may come past them.
    """

    def step(fn: Callable[..., Any]) -> Callable[..., Any]:
        return in_place_of(fn, Effect(declare(fn), _chosen(tool, fn)))

    steps = {name: step(fn) for name, fn in _functions(tool).items()}
    fields = {name: fn for name, fn in steps.items() if name in type(tool).model_fields}
    copy = tool.model_copy(update=fields)
    object.__setattr__(copy, "__class__", _class_of(type(tool)))
    for name in steps.keys() - fields.keys():
        object.__setattr__(copy, name, steps[name])
    if not is_read(copy):
        _check_reached(tool)
    return copy


def _functions(tool: BaseTool) -> dict[str, Callable[..., Any]]:
    """Return the functions behind a tool, by the attributes that hold them."""
    holds = isinstance(tool, (StructuredTool, Tool))
    found = {}
    for method, name in (("_run", "func"), ("_arun", "coroutine")):
        if _brings(tool, method):
            found[method] = getattr(tool, method)
        elif holds and (fn := getattr(tool, name)):
            found[name] = fn
    return found


def _brings(tool: BaseTool, method: str) -> bool:
    """Say whether a tool has a method that is not the framework's own."""
    if method in vars(tool):
        return True
    home = next((cls for cls in type(tool).__mro__ if method in vars(cls)), BaseTool)
    return home.__module__.partition(".")[0] not in _FRAMEWORKS


def _check_reached(tool: BaseTool) -> None:
    """See that every way to call a tool leads to the functions behind it.

    Raises:
        ConfigurationError: its class brings a way of its own.
    """
    own = [method for method in _WAYS if _brings(tool, method)]
    if own:
        raise ConfigurationError(
            f"The class {type(tool).__name__} of the tool {tool.name} brings its own "
            f"{' and '.join(own)}, and may do everything there: no step would be seen.",
            fix="Let the class do its work in _run and _arun; or give safe_tool(…) a function that "
            "calls it.",
        )


def _chosen(tool: BaseTool, fn: Callable[..., Any]) -> Callable[[str], bool]:
    """Return what says whether the model chooses an argument; the framework injects the others.

    A schema that admits further arguments, as those of remote tools do, admits whatever the
    function does not name itself: a parameter that it names and the schema does not is injected.
    """
    schema: Any = tool.tool_call_schema
    if isinstance(schema, dict):
        names = frozenset(schema.get("properties", ()))
        is_open = schema.get("additionalProperties", True) is not False
    else:
        fields = getattr(schema, "model_fields", None) or getattr(schema, "__fields__", {})
        if not fields or isinstance(tool, Tool):
            return lambda _: True
        names = frozenset(fields)
        is_open = getattr(schema, "model_config", {}).get("extra") == "allow"
    if not is_open:
        return names.__contains__
    injected = frozenset(inspect.signature(fn).parameters) - names
    return lambda name: name not in injected


def _class_of(base: type[BaseTool]) -> type[BaseTool]:
    """Return the subclass of a tool's class that notes the call's id and tells of refusals."""
    found = _classes.get(base)
    if found is not None:
        return found

    def invoke(self: BaseTool, input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002
        token = calling.set(_call_id(input))
        try:
            return base.invoke(self, input, config, **kwargs)
        except RefusedError as refusal:
            return _told(self, input, refusal)
        finally:
            calling.reset(token)

    async def ainvoke(self: BaseTool, input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002
        token = calling.set(_call_id(input))
        try:
            return await base.ainvoke(self, input, config, **kwargs)
        except RefusedError as refusal:
            return _told(self, input, refusal)
        finally:
            calling.reset(token)

    def run(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        token = announced.set(True)
        try:
            return base.run(self, *args, **kwargs)
        finally:
            announced.reset(token)

    async def arun(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        token = announced.set(True)
        try:
            return await base.arun(self, *args, **kwargs)
        finally:
            announced.reset(token)

    body = {
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "invoke": functools.wraps(base.invoke)(invoke),
        "ainvoke": functools.wraps(base.ainvoke)(ainvoke),
        "run": functools.wraps(base.run)(run),
        "arun": functools.wraps(base.arun)(arun),
    }
    return _classes.setdefault(base, type(base.__name__, (base,), body))


def _call_id(given: Any) -> str | None:
    call = isinstance(given, dict) and given.get("type") == "tool_call"
    return given.get("id") if call else None


def _told(tool: BaseTool, given: Any, refusal: RefusedError) -> ToolMessage:
    """Return what the model is told of a refusal; raise what is no refusal of this call.

    Raises:
        RefusedError: the call came from no model, the saga takes no more steps, or a person has
            halted them.
    """
    call = _call_id(given)
    if call is None or isinstance(refusal, FAULTS):
        raise refusal
    return ToolMessage(told(tool.name, refusal), name=tool.name, tool_call_id=call, status="error")
