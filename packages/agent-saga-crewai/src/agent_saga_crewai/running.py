"""A run of a crew, an agent or a flow as a boundary: `saga_run` and `saga_run_sync`.

Rules of this part:

- A run that raises is undone, and its caller gets `SagaAborted` from what was raised. A run that
  ends well is committed.
- A run that waits for a human is suspended: neither committed nor undone. The caller gets
  `Waiting`, or CrewAI's own `HumanFeedbackPending` from a flow; the run is gone on with under its
  key, or a flow under its id.
- Inside another boundary a run is a savepoint of it; a question passes through to the outer run.
- A run that was left, however, lets nothing of it begin any more: CrewAI's threads go on for a
  while.
- An outcome that remains unknown does not replace CrewAI's result: it is logged, and stands in
  `last_report()`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from crewai.tools.tool_failure import ToolExecutionFailedError

from agent_saga.engine.handle import SagaHandle
from agent_saga.engine.loops import loop_is_running
from agent_saga.errors import ConfigurationError, SagaSuspended
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.scopes import last_report
from agent_saga_crewai.asking import Waiting, question_of
from agent_saga_crewai.plans import Asked, Plan, planned
from agent_saga_crewai.runs import Run
from agent_saga_crewai.telling import run_ended, run_paused, scopes_closed
from agent_saga_crewai.works import Work, asked_at, waits

__all__ = ["last_report", "saga_run", "saga_run_sync"]


async def saga_run(
    agent: Any,
    inputs: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    resume: Any = None,
    **options: Any,
) -> Any:
    """Run a crew, an agent or a flow as one transaction and return CrewAI's own result.

    Args:
        agent: a `Crew`, a `Flow`, or an `Agent` by itself.
        inputs: the crew's or the flow's inputs, or the agent's message.
        kit: whose boundary it is; the process's defaults when not given.
        key: an id of your own for the run: running again under it repeats no effect, and a run that
            died or waits is gone on with.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate.
        resume: the answer to what the run waits for: `approve(by=…)` or `deny(by=…)`, the text that
            `ask_human` returns, or a human's feedback to a flow.
        options: further options of `akickoff`.

    Raises:
        SagaAborted: the run failed and was undone; see its report.
        SagaClosed: the run's saga was undone.
        UndeclaredTool: nothing says what some of its tools do to the world.
        ClaimRefused: another process goes on with the run.

    A crash leaves a durable record of every effect; a run with a key can be gone on with, or
    recovery undoes the saga.
    """
    asked = Asked(kit, key, on_tool_failure, resume, declared_of(agent))
    work = work_of(agent, inputs, resume, options)
    return await run_async(work, asked)


async def run_async(work: Work, asked: Asked, how: str = "akickoff") -> Any:
    """Carry out a run, on the event loop."""
    plan = await asyncio.to_thread(planned, work, asked)
    ending, before = Ending(plan), last_report()
    try:
        async with plan.scope() as saga:
            with plan.entered(saga) as run, ending.of(run):
                ending.result = await work.start_async(how)
            ending.end(saga, run)
    except SagaSuspended:
        pass
    finally:
        run_ended(before, last_report())
    return ending.given()


def saga_run_sync(
    agent: Any,
    inputs: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str = "continue",
    resume: Any = None,
    **options: Any,
) -> Any:
    """Run a crew, an agent or a flow as one transaction; arguments and errors as for `saga_run`.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    asked = Asked(kit, key, on_tool_failure, resume, declared_of(agent))
    return run_blocking(work_of(agent, inputs, resume, options), asked)


def run_blocking(work: Work, asked: Asked) -> Any:
    """Carry out a run, blocking.

    Raises:
        ConfigurationError: an event loop is running on this thread, which it would block.
    """
    if loop_is_running():
        raise ConfigurationError(
            "A run without `await` would block the event loop that is running here.",
            fix="Use `await saga_run(…)`, or `await crew.akickoff(…)`.",
        )
    plan = planned(work, asked)
    ending, before = Ending(plan), last_report()
    try:
        with plan.scope() as saga:
            with plan.entered(saga) as run, ending.of(run):
                ending.result = work.start()
            ending.end(saga, run)
    except SagaSuspended:
        pass
    finally:
        run_ended(before, last_report())
    return ending.given()


def declared_of(agent: Any) -> Mapping[str, Any]:
    """Return the declarations that `saga_agent` was given."""
    return getattr(agent, "saga_tools", None) or {}


def work_of(agent: Any, inputs: Any, resume: Any, options: Mapping[str, Any]) -> Work:
    """Return what is to be run, with what it is given."""
    plain = getattr(agent, "saga_plain", agent)
    pending = getattr(plain, "pending_feedback", None) is not None
    return Work(plain, inputs, resume if pending else None, options)


class Ending:
    """How one run ends inside its boundary.

    Args:
        plan: the run.

    Attributes:
        result: what CrewAI returned.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._raised: Exception | None = None
        self._question: Mapping[str, Any] | None = None
        self.result: Any = None

    @contextlib.contextmanager
    def of(self, run: Run) -> Iterator[None]:
        """Keep what CrewAI raises inside; let nothing of the run begin afterwards."""
        try:
            with scopes_closed():
                yield
        except Exception as error:
            self._raised = error
        finally:
            run.close("the run has ended")

    def end(self, saga: SagaHandle, run: Run) -> None:
        """End a run that returned, that raised, or that waits.

        Raises:
            SuspendRequested: it waits.
            Exception: it failed, or was ended although CrewAI returned.
            ReplayConflict: an earlier part of it did what this one did not repeat.
        """
        raised = self._raised
        asked = None if raised is None else question_of(raised)
        if asked is not None and raised is not None:  # by a flow's method itself
            run.wait(asked, raised)
        if run.error is not None:
            raise run.error from raised
        if run.question is not None and run.asked is not None:
            if self._plan.nested:
                raise run.asked
            self._suspend(saga, run.question)
        if raised is not None:
            if isinstance(raised, ToolExecutionFailedError) and raised.__cause__ is None:
                raised.__cause__ = run.failure
            raise raised
        if waits(self.result):
            self._pause(saga)
        self._plan.check_repeated(saga)

    def _pause(self, saga: SagaHandle) -> None:
        context = self.result.context
        if self._plan.nested:
            raise ConfigurationError(
                f"The flow asks for feedback ({context.message}) inside another boundary, which "
                "cannot go on with it.",
                fix="Run the flow by itself, and the rest as its methods.",
            )
        question = {"id": context.flow_id, "flow": context.flow_class, "message": context.message}
        self._suspend(saga, {**question, "asked": asked_at(context)})

    def _suspend(self, saga: SagaHandle, question: Mapping[str, Any]) -> None:
        self._question = question
        run_paused(saga.id, question)
        self._plan.suspend(saga, question)

    def given(self) -> Any:
        """Return the framework's result, or what the run waits for."""
        if self._question is None or waits(self.result):
            return self.result
        return Waiting(self._question, self._plan.saga_id or "")
