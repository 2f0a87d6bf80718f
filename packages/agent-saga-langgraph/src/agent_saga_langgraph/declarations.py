"""What an agent's tools do to the world: `compensable(…)`, `read_only()`, `irreversible()`.

    tools={"charge": compensable(refund.using(id="$.id")), "search": read_only()}

Rules of this part:

- A read may run again: one that failed or was interrupted changed nothing.
- A tool that interrupts its graph runs again from its first line when the graph is resumed. If all
  its interrupts come before its effect, `asks_first=True` says so; otherwise an interrupted call
  has an unknown outcome, and is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ConfigurationError, UndeclaredTool

Declarations = Mapping[str, "Declaration"]


class Declaration:
    """What one tool does to the world.

    Args:
        semantics: its kind of effect.
        compensate: how its inverse is derived, for a COMPENSABLE one.
        options: further options of `agent_saga.engine.tool.declare`, and `asks_first`.
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
        options: `asks_first`, and further options of `agent_saga.engine.tool.declare`.
    """
    return Declaration(ActionSemantics.COMPENSABLE, compensate, **options)


def read_only(**options: Any) -> Declaration:
    """Declare a tool that leaves nothing behind; it may run again when a run is resumed."""
    return Declaration(ActionSemantics.REVERSIBLE, **options)


def irreversible(**options: Any) -> Declaration:
    """Declare a tool whose effect stands for ever; a human is asked before each call."""
    return Declaration(ActionSemantics.IRREVERSIBLE, **options)


def checked(declared: Mapping[str, object]) -> dict[str, Declaration]:
    """Return declarations by tool name.

    Raises:
        ConfigurationError: a value is none.
    """
    for name, value in declared.items():
        if not isinstance(value, Declaration):
            raise ConfigurationError(
                f"The tool {name!r} is declared by {value!r}, which says nothing.",
                fix="Use compensable(…), read_only() or irreversible().",
            )
    return dict(declared)  # type: ignore[arg-type]


def undeclared(names: list[str]) -> UndeclaredTool:
    """Return the error for tools that nobody declared, with a block to paste."""
    block = "\n".join(
        f'    "{name}": compensable(…),  # or read_only(), irreversible()' for name in names
    )
    return UndeclaredTool(
        f"Nothing says what {', '.join(names)} {'does' if len(names) == 1 else 'do'} to the world.",
        fix=f"Declare every tool:\ntools={{\n{block}\n}}",
    )
