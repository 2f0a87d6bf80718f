"""Tools that run an agent or a team: such a run is a savepoint of the run that calls it.

Rules of this part:

- When the run inside fails, what it did is undone, and then AutoGen tells the outer model.
- Where a tool failure undoes a run, so does this one.
- What stops a run stops the outer one, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from autogen_core import CancellationToken

from agent_saga.engine.boundary import current_scope
from agent_saga.errors import SagaAborted
from agent_saga.kit.scopes import saga_scope
from agent_saga_autogen import seams
from agent_saga_autogen.calls import called, inside, running
from agent_saga_autogen.effects import stop

if TYPE_CHECKING:
    from agent_saga_autogen.agent import Care

_CARE = "_saga_care"


class NestedRun:
    """A tool that runs an agent or a team of `saga_agent`; made from the tool's class."""

    def __init_subclass__(cls, **_options: Any) -> None:
        """Tell no class of the program's of one that is ours."""

    async def run_json(
        self,
        args: Mapping[str, Any],
        cancellation_token: CancellationToken,
        call_id: str | None = None,
    ) -> Any:
        """Run the agent as a savepoint.

        Raises:
            SagaAborted: it failed, and was undone.
        """
        async with self._savepoint(call_id):
            return await super().run_json(  # type: ignore[misc]
                args, cancellation_token, call_id=call_id
            )

    async def run_json_stream(
        self,
        args: Mapping[str, Any],
        cancellation_token: CancellationToken,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Run the agent as a savepoint, and give what it tells meanwhile."""
        async with self._savepoint(call_id):
            async for event in super().run_json_stream(  # type: ignore[misc]
                args, cancellation_token, call_id=call_id
            ):
                yield event

    @contextlib.asynccontextmanager
    async def _savepoint(self, call_id: str | None) -> AsyncIterator[None]:
        care: Care = vars(self)[_CARE]
        if current_scope.get() is None:
            yield  # the tools inside refuse by themselves
            return
        run = running.get()
        with called(inside(call_id or "")):
            try:
                async with saga_scope(name=str(self.name)):  # type: ignore[attr-defined]
                    with care.held():
                        yield
            except SagaAborted as aborted:
                cause = aborted.cause
                if run is not None and run.on_tool_failure == "rollback":
                    stop(run, cause if isinstance(cause, Exception) else aborted)
                raise


def nested_tool(tool: Any, clone: Any, care: Care) -> Any:
    """Return a copy of a tool that runs another agent in the place of its own, as a savepoint.

    Args:
        tool: an `AgentTool` or a `TeamTool`.
        clone: the agent or team to run.
        care: how that is put under care.
    """
    seams.of(tool, seams.RUNNER)
    return seams.made_as(
        tool, seams.class_of(NestedRun, type(tool)), {seams.RUNNER: clone, _CARE: care}
    )
