"""A run of a framework as a boundary: what it runs on, and how its saga is begun or gone on with.

Rules of this part:

- A run without an id is a saga of its own, and if its process dies it is undone.
- A run with an id is that saga, begun or gone on with; a crash holds it for a while, so that its
  program can go on with it.
- A framework goes on where its own memory says; that nothing of an earlier run is left out is its
  package's to see to, by the keys of its calls.
- An outcome that remains unknown does not replace the framework's result: it is logged, and stands
  in the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.errors import ConfigurationError
from agent_saga.kit.scopes import saga_scope
from agent_saga.runtime.composition import Runtime, process_runtime

if TYPE_CHECKING:
    from agent_saga.engine.handle import SagaHandle, SagaScope
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.wrap import SagaTool
    from agent_saga.kit.agent_kit import AgentKit


def runtime_of(kit: AgentKit | None) -> Runtime:
    """Return what the boundaries of a kit run on; the process's own without a kit."""
    return process_runtime() if kit is None else kit.runtime


def boundary(
    kit: AgentKit | None,
    name: str,
    *,
    saga_id: str | None = None,
    holds: bool = False,
    suspendable: bool = False,
) -> SagaScope:
    """Return the boundary of a run.

    Args:
        kit: whose it is; the process's defaults when None.
        name: what it is called where no kit names it.
        saga_id: the saga that it begins or goes on with; None is a new one without an id.
        holds: a crash holds the saga, so that its program can go on with it.
        suspendable: the run can wait, so every inverse in it must have a name.
    """
    open_scope = saga_scope if kit is None else kit.transaction
    scope = open_scope(
        name=name if kit is None else "",
        on_unsettled="warn",
        saga_id=saga_id,
        resume=saga_id is not None,
        suspendable=suspendable,
        on_crash="hold" if holds else None,
    )
    scope._options.whole = False  # noqa: SLF001 - the engine's own object, of the same project
    return scope


def saga_of(handle: SagaHandle) -> Saga:
    """Return the engine's saga behind a handle."""
    return handle._scope.saga  # noqa: SLF001 - the engine's own object, of the same project


def check_kit(tool: SagaTool[..., Any], saga: Saga) -> None:
    """Refuse a tool that is bound to another kit than the boundary that it is called in.

    Raises:
        ConfigurationError: so it is.
    """
    if None not in (tool.kit, saga.kit) and saga.kit is not tool.kit:
        raise ConfigurationError(
            f"{tool.tool.name} is bound to another kit than the boundary that it is called in.",
            fix="Wrap the tool with the boundary's kit.",
        )
