"""A team under care: what chooses its speakers is in the boundary, and its runs come to rest.

Rules of this part:

- What a team's manager calls (a function that selects, a termination condition, the edges of a
  graph) is called in the boundary, also in a runtime that was started elsewhere.
- Whatever these raise ends the run: AutoGen would wait for ever for what is no `Exception`.
- A run ends when none of its agents works any more: what these still tell would be told to the next
  run. A team whose agents do not come to an end is not run again.
- Who was speaking when a run failed is not waited for in the next one.
- A runtime that somebody stops delivers nothing more, and AutoGen would wait for ever. The agents
  that are at work come to the end of what they do, and then the run fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final

from autogen_agentchat.base import TaskResult, TerminationCondition
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StopMessage
from autogen_core import CancellationToken, MessageContext, MessageHandlerContext

from agent_saga.errors import ConfigurationError
from agent_saga.kit.frameworks.failures import is_cancelled
from agent_saga.kit.frameworks.streams import TURNS
from agent_saga_autogen import seams
from agent_saga_autogen.binding import Binding
from agent_saga_autogen.calls import Run
from agent_saga_autogen.effects import stop
from agent_saga_autogen.leaving import Inside, as_exception, within
from agent_saga_autogen.turns import WORKING, ending, stopped

GIVES_UP: Final = 30.0
"""Seconds after which what was cancelled is left alone; nothing of it may begin any more."""
_LOOKS: Final = 0.01
"""Seconds after which it is looked again whether a team is at rest."""
_ROOM: Final = "_saga_room"


class Room:
    """Where the agents of a team work; shared by the team and its manager.

    Args:
        binding: where the team is called.
        name: the team's.

    Attributes:
        manager: what chooses the speakers, as soon as there is one.
    """

    def __init__(self, binding: Binding, name: str) -> None:
        self.binding = binding
        self.manager: Any = None
        self._name = name
        self._busy = 0
        self._lost = False  # what was told last is delivered as soon as the runtime works again

    def at_rest(self, team: Any) -> bool:
        """Say whether nothing of a run goes on."""
        waited_for = self.manager is not None and bool(seams.speakers(self.manager))
        return not (self._works(team) or (waited_for and seams.delivers(team)))

    def _works(self, team: Any) -> bool:
        members = seams.participants(team)
        return bool(self._busy or any(vars(member).get(WORKING) for member in members))

    def check(self, team: Any) -> None:
        """See that a run can begin.

        Raises:
            ConfigurationError: it cannot.
        """
        if not self.at_rest(team):
            raise ConfigurationError(
                f"An agent of {self._name} still works on a run that has ended.",
                fix="Wait until it has ended, or make the team anew.",
            )
        if not seams.is_started(team):
            raise ConfigurationError(
                f"The runtime of {self._name} does not work, and the run would wait for ever.",
                fix="Start the runtime that was given to the team: runtime.start().",
            )
        _emptied(seams.output(team))
        seams.forget_failures(team)

    async def fail_with_runtime(
        self, team: Any, run: Run | None, token: CancellationToken | None
    ) -> None:
        """Let a run fail when somebody stops the runtime that carries it; to be cancelled else.

        Args:
            team: the team.
            run: its run.
            token: cancels it.
        """
        work = seams.work(team)
        if work is None or run is None or token is None:
            return
        await asyncio.wait({work})
        while True:
            if not self._works(team) and seams.output(team).empty():
                break
            await asyncio.sleep(_LOOKS)
        for _ in range(TURNS):  # the run may be about to end by itself
            await asyncio.sleep(0)
        if self.manager is not None:
            seams.speakers(self.manager).clear()
        self._lost = True
        stop(run, _stopped_runtime(self._name))
        token.cancel()

    async def come_to_rest(self, team: Any) -> None:
        """Wait, bounded, until nothing of a run goes on; what it still tells is told to nobody."""
        if is_cancelled():
            return  # with the event loop, whose end waits for nobody
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVES_UP):
                while True:
                    if await self._rests(team):
                        break
                    await asyncio.sleep(_LOOKS)
        _emptied(seams.output(team))

    async def _rests(self, team: Any) -> bool:
        for _ in range(TURNS):  # what was told last may be on its way
            if not self.at_rest(team):
                return False
            await asyncio.sleep(0)
        return True

    async def handled(
        self, message: object, context: MessageContext, handle: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Let the manager handle a message.

        Args:
            message: the message.
            context: the framework's, of the message.
            handle: handles it.

        Raises:
            Exception: it was asked for an answer, and has none.
        """
        inside = Inside()
        if seams.begins(message) and context.is_rpc:
            seams.speakers(self.manager).clear()
            self._lost = False
        if self._lost and not context.is_rpc:
            return None
        self._busy += 1
        try:
            return await self.binding.call(lambda: self._as_manager(handle))
        except BaseException as error:
            if not inside.raised(error):
                raise
            lost = as_exception(error, f"The manager of {self._name}")
            run = self.binding.run()
            if run is not None and not seams.is_failure(message):
                run.raised = lost
            if lost is error:
                raise
            raise lost from error
        finally:
            self._busy -= 1
            if seams.is_failure(message):
                self._left_by(context)

    async def _as_manager(self, handle: Callable[[], Awaitable[Any]]) -> Any:
        with MessageHandlerContext.populate_context(self.manager.id):  # lost in another context
            return await handle()

    def _left_by(self, context: MessageContext) -> None:
        name = seams.speaker_of(self.manager, context.sender.type) if context.sender else None
        speakers = seams.speakers(self.manager)
        if name in speakers:
            speakers.remove(name)


class SagaTeam:
    """A team whose agents are under care; made by `saga_agent`, together with the team's class."""

    def __init_subclass__(cls, **_options: Any) -> None:
        """Tell no class of the program's of one that is ours."""

    async def run_stream(self, **options: Any) -> AsyncGenerator[Any, None]:
        """Do what the team's class does, and come to rest."""
        room: Room = vars(self)[_ROOM]
        room.check(self)
        run, name = room.binding.run(), str(getattr(self, "name", type(self).__name__))
        token = options.get("cancellation_token")
        watching = asyncio.ensure_future(room.fail_with_runtime(self, run, token))
        try:
            given = super().run_stream(**options)  # type: ignore[misc]
            with ending(run, name, token, tells=True) as inside:
                async with contextlib.aclosing(given) as events:
                    async for event in events:
                        if isinstance(event, TaskResult):
                            watching.cancel()
                        inside.gives()
                        yield event
                        inside.goes_on()
                return
        finally:
            watching.cancel()
            await room.come_to_rest(self)
        if run is not None:
            yield TaskResult(messages=[stopped(run, name)], stop_reason="The run was stopped.")

    def _create_group_chat_manager_factory(self, *args: Any, **options: Any) -> Callable[[], Any]:
        make = super()._create_group_chat_manager_factory(*args, **options)  # type: ignore[misc]
        room: Room = vars(self)[_ROOM]

        def made() -> Any:
            manager = make()
            cls = seams.class_of(SagaManager, type(manager))
            room.manager = seams.made_as(manager, cls, {_ROOM: room})
            return room.manager

        return made


class SagaManager:
    """What chooses a team's speakers, under care."""

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        """Do what its class does, in the boundary."""
        room: Room = vars(self)[_ROOM]
        handle = super().on_message_impl  # type: ignore[misc]
        return await room.handled(message, ctx, lambda: handle(message, ctx))

    async def select_speaker(self, thread: Any) -> Any:
        """Choose who speaks next."""
        with within("What selects the speakers"):
            return await super().select_speaker(thread)  # type: ignore[misc]

    async def update_message_thread(self, messages: Any) -> None:
        """Take in what was said; the edges of a graph are asked."""
        with within("What follows on what was said"):
            await super().update_message_thread(messages)  # type: ignore[misc]


class Ends(TerminationCondition):
    """A termination condition of the program's; it raises exceptions alone.

    Args:
        own: the condition.
    """

    def __init__(self, own: TerminationCondition) -> None:
        self._own = own

    @property
    def terminated(self) -> bool:
        """Whether the condition was reached."""
        return bool(self._own.terminated)

    async def __call__(
        self, messages: Sequence[BaseAgentEvent | BaseChatMessage]
    ) -> StopMessage | None:
        """Return why the team ends, or None."""
        with within("A termination condition"):
            return await self._own(messages)

    async def reset(self) -> None:
        """Begin anew."""
        await self._own.reset()

    def _to_config(self) -> Any:
        return self._own._to_config()  # noqa: SLF001 - a part of the framework's interface


def team_under_care(team: Any, binding: Binding) -> Any:
    """Return a copy of ours of a team as one under care.

    Args:
        team: the copy.
        binding: where it is called.
    """
    name = str(getattr(team, "name", type(team).__name__))
    made = seams.made_as(team, seams.class_of(SagaTeam, type(team)), {_ROOM: Room(binding, name)})
    seams.managed_by(made, seams.class_of(SagaManager, seams.manager_class(team)))
    return made


def _stopped_runtime(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"The runtime of {name} was stopped while the run went on; nothing of it is delivered any "
        "more.",
        fix="End a run through its cancellation token, and stop the runtime after it.",
    )


def _emptied(queue: asyncio.Queue[Any]) -> None:
    while not queue.empty():
        queue.get_nowait()
