"""Workbenches whose calls are steps, and that never raise: `SagaWorkbench`.

Rules of this part:

- AutoGen waits for ever for a call of a workbench that raises. So whatever ends a call is an answer
  that says so; what must end the run is noted in it, and ends it before the model is asked again.
- Of a workbench that keeps its tools to itself (an MCP server's) the step is its `call_tool`. An
  answer that says of itself that the tool failed is no success: the outcome is unknown, unless the
  tool is declared with `not_applied_on=WorkbenchToolFailed`.
- An inverse is made of the answer: of the JSON in it if it is one text that is JSON, else of the
  answer as plain data.
- A tool that nobody declared is not called.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from autogen_core import CancellationToken
from autogen_core.tools import (
    BaseTool,
    StaticStreamWorkbench,
    StreamTool,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)

from agent_saga.errors import ConfigurationError, one_line
from agent_saga.kit.frameworks.declarations import Declarations, checked, from_policy, undeclared
from agent_saga.kit.frameworks.declared import check_named
from agent_saga_autogen import seams
from agent_saga_autogen.binding import Binding
from agent_saga_autogen.calls import Call, Path, agents_here, called, inside, running
from agent_saga_autogen.effects import Effect, stop
from agent_saga_autogen.leaving import CallCancelled, CallLeft, Inside, as_exception
from agent_saga_autogen.stepping import StepTool
from agent_saga_autogen.tools import declared, within_a_boundary

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit


class WorkbenchToolFailed(Exception):
    """A tool of a workbench answered that it failed."""


class Guard:
    """Turns whatever ends a call into an answer.

    Args:
        binding: where the calls are made.
        agent: the name of the agent whose model makes them, behind those of the teams that it is
            in inside the one that is run; empty if that is not known.

    Attributes:
        owner: that agent's clone, as soon as there is one.
    """

    def __init__(self, binding: Binding, agent: Path = ()) -> None:
        self.binding = binding
        self.owner: Any = None
        self._agent = agent

    async def answer(self, name: str, call: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Return the answer to a call, whatever ends it."""
        with self.ending(name) as (ended, _):
            return await self.binding.call(functools.partial(self._placed, call))
        return ended[0]

    async def _placed(self, call: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        with self.placed():
            return await call()

    @contextlib.contextmanager
    def placed(self) -> Any:
        """Let the calls inside be calls of the agent."""
        run, path = running.get(), (*inside().path, *self._agent[-1:])
        waits = run is not None and any(self.owner is one for one in run.waiters)
        with called(Call("", path, waits=waits, agents=(*agents_here(), *self._agent))):
            yield

    @contextlib.contextmanager
    def ending(self, name: str) -> Iterator[tuple[list[ToolResult], Inside]]:
        """Give a list that holds the answer to a call that did not end with one."""
        found: list[ToolResult] = []
        inside = Inside()
        try:
            yield found, inside
        except BaseException as error:
            if not inside.raised(error):
                raise
            lost = as_exception(error, name)
            if isinstance(lost, (CallCancelled, CallLeft)):
                stop(self.binding.run(), lost)
            found.append(failed(name, lost))


def failed(name: str, error: Exception) -> ToolResult:
    """Return the answer to a call that failed."""
    text = str(error) or one_line(error)
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=True)


class StepWorkbench(StaticStreamWorkbench):
    """The tools of an agent of `saga_agent`, each of which is a step or runs an agent.

    Args:
        tools: the tools.
        guard: what turns errors into answers.
        overrides: under what other names and descriptions the tools are shown.
    """

    def __init__(
        self, tools: list[BaseTool[Any, Any]], guard: Guard, overrides: dict[str, Any]
    ) -> None:
        if overrides:
            super().__init__(tools, tool_overrides=overrides)
        else:
            super().__init__(tools)
        self._guard = guard

    def saga_behind(self, name: str) -> object:
        """Return what a tool calls that the log has a name for; None if there is none here."""
        steps = [tool for tool in self._tools if isinstance(tool, StepTool)]
        return next((t.saga_behind for t in steps if t.saga_effect.tool.tool.name == name), None)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call a tool; an error is an answer."""
        call = functools.partial(
            super().call_tool, name, arguments, cancellation_token, call_id=call_id
        )
        return await self._guard.answer(name, call)

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """Call a tool and give what it tells meanwhile; an error is an answer."""
        streams = any(tool.name == name and isinstance(tool, StreamTool) for tool in self._tools)
        if not streams or self._guard.binding.is_lost:
            yield await self.call_tool(name, arguments, cancellation_token, call_id)
            return
        events = super().call_tool_stream(name, arguments, cancellation_token, call_id=call_id)
        with self._guard.ending(name) as (ended, inside), self._guard.placed():
            async for event in events:
                inside.gives()
                yield event
                inside.goes_on()
        for answer in ended:
            yield answer

    def _to_config(self) -> Any:
        raise _cannot_be_dumped(self)


class SagaWorkbench(Workbench):
    """A workbench whose calls are steps, and that never raises.

    Args:
        inner: the workbench that carries the calls out, of an MCP server for example.
        tools: a declaration for each of its tools, by name.
        kit: the kit that they belong to.

    Raises:
        ConfigurationError: a declaration is none.

    What is not declared is what the policy of the kit's gate declares it to be; a tool that nobody
    declared is refused, and ends the run.
    """

    def __init__(
        self, inner: Workbench, *, tools: Declarations | None = None, kit: AgentKit | None = None
    ) -> None:
        self._inner = inner
        self._declared = checked(tools or {})
        self._kit = kit
        self._effects: dict[str, Effect] = {}
        self._listed: list[ToolSchema] = []
        self._guard = Guard(Binding())

    @property
    def saga_binding(self) -> Binding:
        """Where its tools are called, if not in the boundary of their caller."""
        return self._guard.binding

    def of_agent(self, guard: Guard) -> SagaWorkbench:
        """Return this workbench as one of an agent; it shares everything else."""
        made = object.__new__(type(self))
        made.__dict__.update({**self.__dict__, "_guard": guard})
        return made

    def saga_behind(self, name: str) -> object:
        """Return what a tool calls that the log has a name for; None if it is not known here."""
        known = any(effect.tool.tool.name == name for effect in self._effects.values())
        return seams.config_of(self._inner) if known else None

    async def check(self) -> None:
        """See that each tool is declared, and each declaration names a tool.

        Raises:
            UndeclaredTool: some tools have no declaration; the error names all of them.
            ConfigurationError: a declaration names no tool.
        """
        names = [str(tool["name"]) for tool in await self.list_tools()]
        missing = [name for name in names if self._effect(name) is None]
        if missing:
            raise undeclared(missing)
        check_named(names, self._declared)

    async def list_tools(self) -> list[ToolSchema]:
        """Return the tools that there are; those of before while they cannot be listed anew.

        Raises:
            Exception: they could never be listed.
        """
        try:
            self._listed = list(await self._inner.list_tools())
        except Exception:
            if not self._listed:
                raise
        return self._listed

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call a tool as a step; an error is an answer."""
        call = functools.partial(self._step, name, arguments, cancellation_token, call_id)
        return await self._guard.answer(name, call)

    async def _step(
        self,
        name: str,
        given: Mapping[str, Any] | None,
        token: CancellationToken | None,
        call_id: str | None,
    ) -> ToolResult:
        arguments = dict(given or {})  # a model may have written what is none
        effect = self._effect(name)
        if effect is None:
            unknown = undeclared([name])
            stop(running.get(), unknown)
            raise unknown
        answers: list[ToolResult] = []
        call = functools.partial(self._inner.call_tool, name, arguments, token, call_id)
        with called(inside(call_id or "", arguments)):
            try:
                value = await self._cancelled_by(token, effect.call((call, answers), {}))
            except WorkbenchToolFailed:
                if not answers:
                    raise
                return answers[-1]
        return answers[-1] if answers else _shown(name, value)

    @staticmethod
    async def _cancelled_by(token: CancellationToken | None, step: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(step)
        if token is not None:
            token.link_future(task)
        return await task

    def _effect(self, name: str) -> Effect | None:
        if name not in self._effects:
            declaration = self._declared.get(name) or from_policy(self._kit, name)
            if declaration is None:
                return None
            self._declared.check_meant(name, self._inner, behind=seams.config_of, fix=_TWO)
            options = within_a_boundary(name, declaration)
            self._effects[name] = Effect(declared(_forward, self._kit, options))
        return self._effects[name]

    async def start(self) -> None:
        """Start the workbench."""
        await self._inner.start()

    async def stop(self) -> None:
        """Stop the workbench."""
        await self._inner.stop()

    async def reset(self) -> None:
        """Reset the workbench."""
        await self._inner.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the workbench's own state."""
        return await self._inner.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Give the workbench its own state."""
        await self._inner.load_state(state)

    def _to_config(self) -> Any:
        raise _cannot_be_dumped(self)


_TWO: Final = (
    "Make each workbench a SagaWorkbench(workbench, tools={…}) of its own, and give those to the "
    "agents."
)


def _cannot_be_dumped(workbench: Workbench) -> ConfigurationError:
    return ConfigurationError(
        f"{type(workbench).__name__} cannot be dumped: loaded again, its calls would be no steps.",
        fix="Dump the agent or workbench that it was made from, and wrap it again when it is "
        "loaded.",
    )


async def _forward(call: Callable[[], Awaitable[ToolResult]], answers: list[ToolResult]) -> Any:
    """Do what a workbench does; what it says of its own failure counts as one.

    Raises:
        WorkbenchToolFailed: so its answer says.
    """
    answer = await call()
    answers.append(answer)
    if answer.is_error:
        raise WorkbenchToolFailed(f"{answer.name} answered: {answer.to_text()[:200]}")
    texts = [part.content for part in answer.result if isinstance(part, TextResultContent)]
    if len(texts) == len(answer.result) == 1:
        with contextlib.suppress(ValueError):
            return json.loads(texts[0])
    return answer.model_dump(mode="json", exclude={"type"})


def _shown(name: str, value: Any) -> ToolResult:
    """Return a recorded answer that is given again."""
    if isinstance(value, dict) and {"name", "result", "is_error"} == set(value):
        return ToolResult.model_validate(value)
    return ToolResult(name=name, result=[TextResultContent(content=json.dumps(value))])
