"""From declarations to tools of the engine: which options a tool is wrapped with.

Rules of this part:

- A tool that the code does not declare is what the policy of the kit's gate declares it to be; one
  that nobody declares is refused, and one error names all of them.
- A declaration that names no tool is refused: it is a mistake in writing.
- A declaration that would be for two different tools of one name is refused.
- A read that failed changed nothing and may run again.
- What is declared already takes no more options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

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
from agent_saga.kit.frameworks.namesakes import itself
from agent_saga.kit.tools import tool as bare_tool

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

T = TypeVar("T")


def is_a_read(options: dict[str, Any]) -> bool:
    """Say whether options declare a tool that leaves nothing behind."""
    semantics = options.get("semantics")
    return semantics is not None and (
        ActionSemantics.parse(semantics) is ActionSemantics.REVERSIBLE
    )


def engine_options(
    options: dict[str, Any],
    *,
    asks: type[BaseException] | None = None,
    harmless: tuple[type[BaseException], ...] = (),
) -> dict[str, Any]:
    """Return a tool's options for the engine, which knows nothing of questions and of reads.

    Args:
        options: as they were given.
        asks: what a tool of the framework raises when it asks a human; `asks_first=True` then says
            that it does so only before its effect.
        harmless: what is raised before the tool's function is called.
    """
    given = dict(options)
    named = given.get("not_applied_on") or ()
    several = (*(named if isinstance(named, tuple) else (named,)), *harmless)
    if asks is not None and given.pop("asks_first", False):
        several = (*several, asks)
    if is_a_read(given):
        several = (*several, Exception)
        given.setdefault("idempotent", True)
    if several:
        given["not_applied_on"] = several
    return given


def engine_tool(
    fn: Callable[..., Any], kit: AgentKit | None, options: dict[str, Any]
) -> SagaTool[..., Any]:
    """Return a function as a tool of the engine.

    Args:
        fn: the function.
        kit: the kit that it belongs to, or None.
        options: as `engine_options` made them.

    Raises:
        ConfigurationError: it is declared already, or an option does not fit.
        UndeclaredSemantics: nothing says what the tool does to the world.
    """
    if isinstance(fn, SagaTool):
        raise ConfigurationError(
            f"{fn.tool.name} is declared already.", fix="Make the tool with safe_tool(…) alone."
        )
    return bare_tool(**options)(fn) if kit is None else kit.safe_tool(fn, **options)


def check_undeclared(
    tool: SagaTool[..., Any], semantics: object, compensate: object, options: dict[str, Any]
) -> None:
    """Refuse to declare again what is declared already.

    Raises:
        ConfigurationError: something was given that would.
    """
    if options or semantics is not None or compensate is not None:
        raise ConfigurationError(f"{tool.tool.name} is declared already; it takes no more options.")


def by_policy(kit: AgentKit | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's options; what they do not say of its effect the policy of the gate does."""
    if options.get("semantics") is not None or options.get("compensate") is not None:
        return options
    declaration = from_policy(kit, str(options["name"]))
    return {**options, **({} if declaration is None else declaration.options)}


def check_named(names: Iterable[str], declarations: Declarations, fix: str = "") -> None:
    """Refuse declarations that name no tool.

    Args:
        names: the tools' names.
        declarations: the declarations.
        fix: what to do, where there may be tools that do not show here.

    Raises:
        ConfigurationError: so it is.
    """
    known = set(names)
    idle = sorted(set(declarations) - known)
    if idle:
        raise ConfigurationError(
            f"There is no tool {', '.join(idle)}; the tools are {', '.join(sorted(known))}.",
            fix=fix,
        )


def each_declared(
    tools: Iterable[T],
    declarations: Declarations,
    kit: AgentKit | None,
    *,
    name: Callable[[T], str],
    wrapped: Callable[[T], bool],
    behind: Callable[[T], object] = itself,
) -> list[tuple[T, Declaration | None]]:
    """Return each tool with its declaration; with None if it is wrapped already.

    Args:
        tools: tools of a framework.
        declarations: what the code declares, by name.
        kit: whose policy declares the others.
        name: tells a tool's name.
        wrapped: says whether a tool is wrapped already.
        behind: returns what tells a tool from other ones of its name.

    Raises:
        UndeclaredTool: some have no declaration; the error names all of them.
        ConfigurationError: different ones have the same name.
    """
    given, declarations = list(tools), checked(declarations)
    found: list[tuple[T, Declaration | None]] = []
    for tool in given:
        declaration = None
        if not wrapped(tool):
            declaration = declarations.get(name(tool)) or from_policy(kit, name(tool))
        found.append((tool, declaration))
    missing = [name(tool) for tool, one in found if one is None and not wrapped(tool)]
    if missing:
        raise undeclared(list(dict.fromkeys(missing)))
    for tool, one in found:
        if one is not None:
            declarations.check_meant(name(tool), tool, behind=behind)
    return found


def told_first(fn: Any, semantics: ActionSemantics | str | None) -> tuple[Any, Any]:
    """Return the function and the semantics that a decorator was given, whichever came first.

    `@saga_tool("REVERSIBLE")` means what `@saga_tool(semantics="REVERSIBLE")` means.

    Args:
        fn: the first argument: a function, what a tool does to the world, or nothing.
        semantics: what was given by name.

    Raises:
        ConfigurationError: what the tool does was said twice.
    """
    if not isinstance(fn, ActionSemantics | str):
        return fn, semantics
    if semantics is not None:
        raise ConfigurationError(
            f"What the tool does to the world is said twice: {fn} and {semantics}.",
            fix='Write @saga_tool("REVERSIBLE"), or saga_tool(function, semantics="REVERSIBLE").',
        )
    return None, fn
