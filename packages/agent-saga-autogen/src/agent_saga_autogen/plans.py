"""What a run is: which saga it belongs to, and how its boundary behaves.

Rules of this part:

- A run without a key is a saga of its own, and if its process dies it is undone.
- A run with a key is that saga, begun or gone on with; a crash holds it for a while, so that its
  program can go on with it.
- A run inside another boundary is a savepoint of that one and has no key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from agent_saga.engine.boundary import current_scope
from agent_saga.engine.handle import SagaHandle, SagaScope
from agent_saga.engine.tool import one_of
from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.scopes import saga_scope
from agent_saga.runtime.composition import process_runtime
from agent_saga_autogen.attempts import attempts_of
from agent_saga_autogen.calls import Run, entered, running

ON_TOOL_FAILURE = ("continue", "rollback", "ask")


def check_policy(kit: AgentKit | None, on_tool_failure: str) -> None:
    """Refuse a policy that does not exist, or that needs somebody to ask where there is nobody.

    Raises:
        ConfigurationError: so it is.
    """
    one_of("on_tool_failure", on_tool_failure, ON_TOOL_FAILURE)
    runtime = process_runtime() if kit is None else kit.runtime
    if on_tool_failure == "ask" and runtime.gate.approval_provider is None:
        raise ConfigurationError(
            "on_tool_failure='ask' needs somebody to ask, and the gate has no approval provider.",
            fix="Give the kit gate=PreFlightGate(approval_provider=…).",
        )


class Plan:
    """One run as it was asked for.

    Args:
        kit: whose boundary it is, or None.
        key: the saga's id, if its caller names it.
        on_tool_failure: "continue", "rollback" or "ask".

    Raises:
        ConfigurationError: it cannot be a boundary as it was asked for.
    """

    def __init__(self, kit: AgentKit | None, key: str | None, on_tool_failure: str) -> None:
        check_policy(kit, on_tool_failure)
        self.nested = current_scope.get() is not None
        if self.nested and key is not None:
            raise ConfigurationError(
                "A run inside another boundary was given a key; it is a part of that saga."
            )
        self.run = Run(on_tool_failure, running.get() if self.nested else None)
        self._kit = kit
        self._key = key

    def scope(self) -> SagaScope:
        """Return the boundary."""
        open_scope = saga_scope if self._kit is None else self._kit.transaction
        return open_scope(
            name="autogen" if self._kit is None else "",
            on_unsettled="warn",
            saga_id=self._key,
            resume=self._key is not None,
            on_crash="hold" if self._key is not None else None,
        )

    @contextlib.contextmanager
    def entered(self, handle: SagaHandle) -> Iterator[None]:
        """Let the steps of this run know what they must; entered inside the boundary."""
        if not self.nested:
            attempts_of(_engines_saga(handle), anew=True)
        with entered(self.run):
            yield

    def end(self, handle: SagaHandle) -> None:
        """See that the run may end well.

        Raises:
            ReplayConflict: a lost attempt did what this one did not repeat.
        """
        if not self.nested:
            saga = _engines_saga(handle)
            attempts_of(saga).check_repeated(saga)


def _engines_saga(handle: SagaHandle) -> Any:
    return handle._scope.saga  # noqa: SLF001 - the engine's own object, of the same project
