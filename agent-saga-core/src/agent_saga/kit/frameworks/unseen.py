"""Tools that a framework calls inside a boundary, and that are no steps: what each package refuses.

Rules of this part:

- Nothing would undo what such a call does, and the run would end clean. So it is refused before it
  runs, wherever a package hears of it.
- What a step calls is the step's, whose inverse takes it back. A read has none: a tool that one
  calls, as an agent inside a tool does, must be a step of its own.
- What the policy of the boundary's gate calls REVERSIBLE may run: it leaves nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import UndeclaredTool
from agent_saga.kit.frameworks.declarations import from_policy
from agent_saga.observe.correlation import STEP_ID

if TYPE_CHECKING:
    from agent_saga.engine.scope import Scope
    from agent_saga.kit.agent_kit import AgentKit


def is_covered(scope: Scope | None) -> bool:
    """Say whether the running code is inside a step whose inverse answers for what it does.

    Args:
        scope: the boundary here, or None.
    """
    inside = STEP_ID.get()
    step = None if scope is None else scope.saga.steps.get(inside)
    return bool(inside) and (step is None or not step.tool.reversible)


def may_run(kit: AgentKit | None, name: str) -> bool:
    """Say whether the policy of a kit's gate calls a tool REVERSIBLE."""
    declared = from_policy(kit, name)
    semantics: Any = None if declared is None else declared.options["semantics"]
    return semantics is not None and (
        ActionSemantics.parse(semantics) is ActionSemantics.REVERSIBLE
    )


def refusal(name: str, fix: str) -> UndeclaredTool:
    """Return the error of a call of a tool that is no step.

    Args:
        name: the tool's name.
        fix: what to do with this framework.
    """
    return UndeclaredTool(
        f"The tool {name} was called inside a boundary without being a step; it did not run. "
        "Nothing would undo it, and the run would be called clean.",
        fix=fix,
    )
