"""What an agent's tools do to the world: `compensable(…)`, `read_only()`, `irreversible()`.

    tools={"charge": compensable(refund.using(id="$.id")), "search": read_only()}

Rules of this part:

- A read may run again: one that failed or was interrupted changed nothing.
- A tool that the code leaves out is what the policy of the kit's gate declares it to be.
- A declaration by name is for one tool: two different tools of one name are refused, also when the
  second one shows only while a run goes on. What one of them is would be said of the other.
- Some frameworks run a tool that interrupts them again from its first line when they are resumed.
  If all its interrupts come before its effect, `asks_first=True` says so; otherwise an interrupted
  call has an unknown outcome, and is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ConfigurationError, UndeclaredTool
from agent_saga.kit.frameworks.namesakes import itself, same
from agent_saga.runtime.composition import process_runtime

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit

T = TypeVar("T")
Declarations = Mapping[str, "Declaration"]


class Declaration:
    """What one tool does to the world.

    Args:
        semantics: its kind of effect.
        compensate: how its inverse is derived, for a COMPENSABLE one.
        options: further options of `agent_saga.engine.tool.declare`, and of the package.
    """

    __slots__ = ("options",)

    def __init__(
        self, semantics: ActionSemantics, compensate: object = None, **options: Any
    ) -> None:
        self.options = {"semantics": semantics, "compensate": compensate, **options}


def compensable(compensate: object, **options: Any) -> Declaration:
    """Declare a tool whose effect is taken back by an inverse.

    Args:
        compensate: a template (`refund.using(id="$.id")`), a dict of `handler` and `kwargs`, or a
            factory on the raw result. Where runs can be interrupted the inverse must have a name.
        options: further options of `agent_saga.engine.tool.declare`, and of the framework's
            package, such as `asks_first` where tools can interrupt a run.
    """
    return Declaration(ActionSemantics.COMPENSABLE, compensate, **options)


def read_only(**options: Any) -> Declaration:
    """Declare a tool that leaves nothing behind; it may run again when a run is resumed."""
    return Declaration(ActionSemantics.REVERSIBLE, **options)


def irreversible(**options: Any) -> Declaration:
    """Declare a tool whose effect stands for ever; a human is asked before each call."""
    return Declaration(ActionSemantics.IRREVERSIBLE, **options)


class Declared(dict[str, Declaration]):
    """Declarations by tool name, each for the first tool of its name that is met."""

    def __init__(self, declared: Declarations) -> None:
        super().__init__(declared)
        self._meant: dict[str, object] = {}

    def for_a_run(self) -> Declared:
        """Return them for one run: what tools the run itself brings it forgets with the run."""
        made = Declared(self)
        made._meant.update(self._meant)
        return made

    def check_meant(
        self, name: str, tool: T, *, behind: Callable[[T], object] = itself, fix: str = ""
    ) -> None:
        """Refuse a tool whose name is declared for another one, by the code or by a policy.

        Args:
            name: the tool's name.
            tool: a tool of a framework, as it was given.
            behind: returns what tells it from other tools of its name: what it calls.
            fix: what to do where the tool cannot be wrapped by itself.

        Raises:
            ConfigurationError: so it is.
        """
        found = behind(tool)
        if not same(found, self._meant.setdefault(name, found)):
            raise ConfigurationError(
                f"Two different tools are named {name}, and a declaration by name is for one.",
                fix=fix
                or f"Wrap each of them, under a name of its own: wrap_tool(tool, name='my {name}', "
                "semantics=…, compensate=…). Then tools= needs no entry for them.",
            )


def checked(declared: Mapping[str, object]) -> Declared:
    """Return declarations by tool name; those that were checked before as they are.

    Raises:
        ConfigurationError: a value is none.
    """
    if isinstance(declared, Declared):
        return declared
    for name, value in declared.items():
        if not isinstance(value, Declaration):
            raise ConfigurationError(
                f"The tool {name!r} is declared by {value!r}, which says nothing.",
                fix="Use compensable(…), read_only() or irreversible().",
            )
    return Declared(declared)  # type: ignore[arg-type]


def from_policy(kit: AgentKit | None, name: str) -> Declaration | None:
    """Return what the policy of a kit's gate declares of a tool; None when it names it not.

    The inverse that the policy declares is added where the tool is wrapped.
    """
    runtime = process_runtime() if kit is None else kit.runtime
    policy = runtime.gate.policy
    found = None if policy is None else policy.tools.get(name)
    return None if found is None else Declaration(found.semantics)


def undeclared(names: list[str]) -> UndeclaredTool:
    """Return the error for tools that nobody declared, with a block to paste."""
    block = "\n".join(
        f'    "{name}": compensable(…),  # or read_only(), irreversible()' for name in names
    )
    return UndeclaredTool(
        f"Nothing says what {', '.join(names)} {'does' if len(names) == 1 else 'do'} to the world.",
        fix=f"Declare every tool:\ntools={{\n{block}\n}}",
    )
