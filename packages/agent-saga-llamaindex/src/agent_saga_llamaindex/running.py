"""A run of an agent or a workflow as a boundary: `saga_run` and `saga_run_sync`.

Rules of this part:

- A run that raises is undone, and its caller gets `SagaAborted` from what was raised: a tool, the
  model, a step, the limit of iterations, the workflow's timeout. A run that ends well is committed.
- A run that waits for somebody is suspended: neither committed nor undone. The caller gets
  `Waiting`; going on with its context goes on with the saga.
- A run that is cancelled is cancelled in the framework, too, and undone when that has ended:
  LlamaIndex by itself would go on behind its caller.
- So are the runs of agents inside it: LlamaIndex ends none of them with the run that began them.
- Inside another boundary a run is a savepoint of it.
- An outcome that remains unknown does not replace the framework's result: it is logged, and stands
  in `last_report()`.
- An agent that is not a `saga_agent` is made one for the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent
from workflows import Workflow
from workflows.events import Event, StartEvent
from workflows.handler import WorkflowHandler

from agent_saga.engine.handle import SagaHandle
from agent_saga.errors import ConfigurationError, SagaSuspended
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.loops import blocking
from agent_saga_llamaindex.agent import care_of, is_bounded, saga_agent
from agent_saga_llamaindex.asking import Answer, ApprovalGiven, Waiting
from agent_saga_llamaindex.contexts import Note, forget_notes, give_memory, restored, taken
from agent_saga_llamaindex.plans import Asked, Plan
from agent_saga_llamaindex.steps import check_goes_on, seen
from agent_saga_llamaindex.waiting import Watch, followed

_GIVES_UP = 30.0
"""Seconds after which a cancelled run is left alone; nothing of it may begin any more."""


async def saga_run(
    agent: Any,
    user_msg: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent or a workflow as one transaction and return the framework's own result.

    Args:
        agent: a `saga_agent`; an agent all of whose tools are wrapped or in the gate's policy; or a
            `Workflow` of your own.
        user_msg: what the agent is told; for a workflow, its start event, if it has one. For a run
            that waits, the answer, or a list of answers: an event, `approve(by="…")` or
            `deny(by="…")`.
        kit: whose boundary it is; the agent's when not given, else the process's defaults.
        key: an id of your own for the saga: running again under it repeats no effect, and a run
            whose process died is gone on with.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate; the agent's when not given.
        options: further options of its `run`: `chat_history`, `memory`, `ctx`, `max_iterations`,
            `start_event`, … A `ctx` that waits, also as plain data, is gone on with.

    Returns:
        The framework's result; `Waiting` if the run waits for somebody.

    Raises:
        SagaAborted: the run failed and was undone; see its report.
        SagaClosed: the saga of the key or the context has ended, or has gone further.
        ClaimRefused: another run goes on in the same saga.
        UndeclaredTool: nothing says what some of its tools do to the world.

    A crash leaves a durable record of every effect; recovery undoes the saga, or the run is gone on
    with under its key.
    """
    started = Started(agent, user_msg, kit, key, on_tool_failure, options)
    return await started.carry_out(started.followed)


def saga_run_sync(
    agent: Any,
    user_msg: Any = None,
    *,
    kit: AgentKit | None = None,
    key: str | None = None,
    on_tool_failure: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent or a workflow as one transaction where no event loop runs; as `saga_run`.

    Raises:
        ConfigurationError: an event loop is running on this thread.
    """
    return blocking(
        "saga_run",
        saga_run(agent, user_msg, kit=kit, key=key, on_tool_failure=on_tool_failure, **options),
    )


class Started:
    """A run that is about to begin; nothing has run yet.

    Args:
        agent, user_msg, kit, key, on_tool_failure, options: as for `saga_run`.

    Raises:
        ConfigurationError, UndeclaredTool: it cannot begin as it was asked for.

    Attributes:
        watch: what the run asked of the outside.
        plan: what it is; known when it is carried out.
    """

    plan: Plan

    def __init__(
        self,
        agent: Any,
        user_msg: Any,
        kit: AgentKit | None,
        key: str | None,
        on_tool_failure: str | None,
        options: dict[str, Any],
    ) -> None:
        if isinstance(agent, (BaseWorkflowAgent, AgentWorkflow)):
            self.workflow = agent if is_bounded(agent) else saga_agent(agent, kit)
            care = care_of(self.workflow)
            kit, on_tool_failure = kit or care.kit, on_tool_failure or care.on_tool_failure
        elif isinstance(agent, Workflow):
            self.workflow = seen(agent)
        else:
            raise ConfigurationError(
                f"saga_run takes an agent or a workflow of LlamaIndex, not {type(agent).__name__}."
            )
        self._asked = Asked(kit, key, on_tool_failure or "continue")
        self._given = user_msg
        self._options = dict(options)
        self._handler: WorkflowHandler | None = None
        self.watch = Watch()
        self.before_turn: Callable[[], Awaitable[None]] | None = None

    async def carry_out(self, follow: Callable[[WorkflowHandler], Awaitable[Any]]) -> Any:
        """Carry the run out inside its boundary, and return its result, or that it waits.

        Args:
            follow: what awaits the framework's result.
        """
        context = restored(self.workflow, self._options.get("ctx"))
        found = await taken(context, self._asked.key)
        plan = self.plan = Plan(self._asked, found)
        answers = _answers(self._given, goes_on=found is not None)
        if context is not None:
            self._options["ctx"] = context
        await plan.look()
        if found is not None:
            self.watch = Watch(plan.asked)
        for answer in answers:
            self._hear(answer)
        waiting: Waiting | None = None
        refused: BaseException | None = None
        try:
            async with plan.scope() as saga:
                refused = await plan.look_again(saga)
                if refused is not None:
                    raise refused
                with plan.entered(saga):
                    result = await self._run(saga, follow)
                    if self.watch.waits:
                        waiting = await self._put_away(saga)
                        plan.suspend(saga, self._note.mark, self.watch.as_text())
                plan.end(saga)
        except SagaSuspended:
            if refused is not None:
                raise refused from None
            if waiting is None:
                raise
            return waiting
        return result

    async def followed(self, handler: WorkflowHandler) -> Any:
        """Return a run's result; None if it waits, which stands in the watch."""
        return await followed(handler, self.watch, goes_on=self.goes_on)

    @property
    def goes_on(self) -> bool:
        """Whether it goes on from a context that waited."""
        return self.plan.found is not None

    async def tell(self, answer: Any) -> None:
        """Tell the run something from outside: an event, or an answer to the gate's questions.

        Raises:
            ConfigurationError: nothing is going on, or nothing of the kind waits.
        """
        if self._handler is None or self._handler.is_done() or self.watch.waits:
            raise ConfigurationError(
                "Nothing of this run is going on that could be told something.",
                fix="Go on with the context of the result: saga_run(agent, answer, ctx=…).",
            )
        for event in self._events(answer):
            self.watch.told(event)
            self._handler.ctx.send_event(event)

    def _events(self, answer: Any) -> list[Any]:
        known = self.plan.run.answers
        if not isinstance(answer, (Answer, ApprovalGiven)):
            return [answer]
        if known is None:
            raise ConfigurationError("This run cannot wait, so nothing of the gate is open.")
        return list(known.take(answer))

    async def _run(self, saga: SagaHandle, follow: Any) -> Any:
        run = self.plan.run
        run.before_turn = self.before_turn
        found = self.plan.found
        self._note = Note(saga.id, found)
        run.keep = self._note.of_turn
        try:
            handler = self._handler = self._begun()
            await self._note.write(handler.ctx)
            if found is not None:
                await give_memory(self.workflow, handler.ctx, found, self._options.get("memory"))
            result = await follow(handler)
        except BaseException:
            for one in tuple(run.handlers):
                await ended(one)
            if self._handler is not None:
                await forget_notes(self.workflow, self._handler.ctx)
            check_goes_on()
            raise
        for one in () if self.watch.waits else tuple(run.handlers):
            await ended(one)
        return result

    def _hear(self, answer: Any) -> None:
        """Take in an answer before the run goes on.

        The steps that asked the gate are run again by the framework, and find its answers.
        """
        for event in self._events(answer):
            self.watch.told(event)
            if not isinstance(event, ApprovalGiven):
                self.watch.to_send.append(event)

    def _begun(self) -> WorkflowHandler:
        found = self.plan.found
        options = {**self._options, **_as_options(self._given)}
        handler: WorkflowHandler = self.workflow.run(
            **(options if found is None else {"ctx": found.context})
        )
        return handler

    async def _put_away(self, saga: SagaHandle) -> Waiting:
        """End the framework's run where it waits; return what goes on with it.

        Raises:
            ConfigurationError: another process could not go on with it.
        """
        run = self.plan.run
        try:
            if self.plan.nested or run.answers is None:
                raise ConfigurationError(
                    "The run waits for an event, and this run cannot wait: it is inside another "
                    "boundary, or its log is not one in files.",
                    fix="Give the kit wal='a path', and let the outermost run be the one that "
                    "waits.",
                )
            if run.stop is not None:
                raise run.stop
            assert self._handler is not None  # noqa: S101 - it was followed until here
            context = await self._note.renewed(self._handler.ctx)
        finally:
            for one in tuple(run.handlers):
                await ended(one)
        return Waiting(tuple(self.watch.events), context, saga.id)


def _as_options(user_msg: Any) -> dict[str, Any]:
    if user_msg is None:
        return {}
    return {"start_event" if isinstance(user_msg, StartEvent) else "user_msg": user_msg}


def _answers(given: Any, *, goes_on: bool) -> list[Any]:
    """Return what a run that waits is told.

    Raises:
        ConfigurationError: it is none, or the run does not wait.
    """
    several = given if isinstance(given, list) else [given]
    answers = [one for one in several if _is_answer(one)]
    if not goes_on and answers:
        raise ConfigurationError(
            "The run was given an answer, and nothing says which run waits for it.",
            fix="Give the context of the run that waits: ctx=waiting.context.",
        )
    if goes_on and given is not None and len(answers) != len(several):
        raise ConfigurationError(
            f"The context is that of a run that goes on, and {type(given).__name__} is no answer.",
            fix="Give an event, approve(by='…') or deny(by='…'); or begin with another context.",
        )
    return answers


def _is_answer(given: Any) -> bool:
    return isinstance(given, (Answer, Event)) and not isinstance(given, StartEvent)


async def ended(handler: WorkflowHandler) -> None:
    """Cancel a run that goes on, and wait until the framework has ended it."""
    ending = asyncio.ensure_future(handler.cancel_run(timeout=_GIVES_UP))
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError:
            continue
