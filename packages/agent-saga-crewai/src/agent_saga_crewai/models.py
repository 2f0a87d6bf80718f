"""Agents and their models, so that attempts are known and a run can be gone on with.

Rules of this part:

- A model stays what it is: of a subclass of its class, sharing its state. Outside a run it does
  nothing of its own.
- A call that stands twice in one answer, under one id, is one call.
- In a run that can be gone on with, each answer is recorded: as a read, so that a run that begins
  again is led the same way, without asking the model. The same question, asked for the n-th time,
  has the n-th recorded answer; one that cannot be recorded is asked again.
- Once the run is over, no model is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from crewai import BaseLLM
from pydantic import BaseModel

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.tool import declare
from agent_saga.engine.wrap import Invocation
from agent_saga.errors import RefusedError, ReplayConflict, ResultNotRecorded
from agent_saga_crewai.attempts import attempts_of
from agent_saga_crewai.effects import calling
from agent_saga_crewai.place import call_of, digest_of
from agent_saga_crewai.runs import current_run

if TYPE_CHECKING:
    from agent_saga_crewai.runs import Run

MODEL: Final = "crewai.model"
_SHARED: Final = (
    *("__dict__", "__pydantic_fields_set__", "__pydantic_private__", "__pydantic_extra__"),
)
_classes: dict[type[Any], type[Any]] = {}


def watched(agent: Any) -> None:
    """Put an agent and its model under this package's care, once."""
    model = getattr(agent, "llm", None)
    if isinstance(model, BaseLLM) and type(model) not in _classes.values():
        agent.llm = sharing(model, _class_of(type(model)))
    for name, attempting in (("execute_task", _attempting), ("aexecute_task", _aattempting)):
        if name not in vars(agent) and hasattr(agent, name):
            object.__setattr__(agent, name, attempting(agent, getattr(agent, name)))


def _attempting(agent: Any, execute: Callable[..., Any]) -> Callable[..., Any]:
    """Return how an agent executes a task, which notes that an attempt begins.

    CrewAI calls it for the first attempt, and again for each one after an error or a guardrail.
    """

    @functools.wraps(execute)
    def attempting(*args: Any, **kwargs: Any) -> Any:
        with _attempt(agent, args, kwargs):
            return execute(*args, **kwargs)

    return attempting


def _aattempting(agent: Any, execute: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    @functools.wraps(execute)
    async def attempting(*args: Any, **kwargs: Any) -> Any:
        with _attempt(agent, args, kwargs):
            return await execute(*args, **kwargs)

    return attempting


@contextlib.contextmanager
def _attempt(agent: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    """Let the code inside be an attempt, which ends the run if it raises what is no `Exception`.

    CrewAI would wait for ever for an asynchronous task that ended so.
    """
    run, task = current_run(), args[0] if args else kwargs.get("task")
    if run is None:
        yield
        return
    run.check()
    with _in_call(run, agent, task):
        run.begin(agent, task, getattr(agent, "crew", None))
        try:
            yield
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            raise run.stop(error) from error


def _in_call(run: Run, agent: Any, task: Any) -> contextlib.AbstractContextManager[None]:
    """Let the code inside be the body of the call by which another agent delegates a task."""
    call = calling.get()
    if call is None or task is None or call.task is task or _is_listed(task, call.crew):
        return contextlib.nullcontext()
    return run.delegated(agent, task, call)


def _is_listed(task: Any, crew: Any) -> bool:
    return any(one is task for one in getattr(crew, "tasks", None) or ())


def sharing(given: Any, cls: type[Any]) -> Any:
    """Return an object of another class that has the state of a given one."""
    other = object.__new__(cls)
    for name in _SHARED:
        object.__setattr__(other, name, getattr(given, name, None))
    return other


def _class_of(base: type[Any]) -> type[Any]:
    found = _classes.get(base)
    if found is not None:
        return found

    @functools.wraps(base.call)
    def call(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        run = current_run()
        if run is None:
            return base.call(self, messages, *args, **kwargs)
        return _Question(run, messages, args, kwargs).put(
            lambda: base.call(self, messages, *args, **kwargs)
        )

    @functools.wraps(base.acall)
    async def acall(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        run = current_run()
        if run is None:
            return await base.acall(self, messages, *args, **kwargs)
        return await _Question(run, messages, args, kwargs).aput(
            lambda: base.acall(self, messages, *args, **kwargs)
        )

    for method in (call, acall):  # what the class does about rate limits is done in it already
        method.__dict__["_crewai_rate_limit_wrapped"] = True
    body = {
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "call": call,
        "acall": acall,
    }
    return _classes.setdefault(base, type(base.__name__, (base,), body))


class _Question:
    """A question to a model.

    Args:
        run: in which it is asked.
        messages: what is asked.
        args: the framework's further arguments.
        kwargs: the framework's further arguments, by name.
    """

    def __init__(
        self, run: Run, messages: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._run = run
        self._messages = messages
        self._form = kwargs.get("response_model")
        agent = kwargs.get("from_agent")
        self._place = run.place(agent, kwargs.get("from_task"), getattr(agent, "crew", None))

    def put(self, ask: Callable[[], Any]) -> Any:
        """Return the answer; blocks."""
        self._run.check()
        self._run.guard()
        if not self._is_recorded():
            return once(ask())
        try:
            value = self._step(lambda: to_record(ask())).run()
        except (ResultNotRecorded, ReplayConflict):
            return once(ask())
        except RefusedError as refusal:
            raise self._run.stop(refusal) from refusal
        return self._given(value)

    async def aput(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer."""
        self._run.check()
        self._run.guard()
        if not self._is_recorded():
            return once(await ask())

        async def forward() -> Any:
            return to_record(await ask())

        try:
            value = await self._step(forward).start()
        except (ResultNotRecorded, ReplayConflict):
            return once(await ask())
        except RefusedError as refusal:
            raise self._run.stop(refusal) from refusal
        return self._given(value)

    def _is_recorded(self) -> bool:
        """Say whether the answer is recorded: it leads a run that begins again the same way."""
        return self._run.records

    def _step(self, forward: Callable[[], Any]) -> Invocation:
        scope = self._run.scope
        tool = declare(
            forward,
            name=MODEL,
            semantics=ActionSemantics.REVERSIBLE,
            not_applied_on=(Exception,),
            idempotent=True,
        )
        tool.declares = None
        asked = digest_of(self._messages)
        key = attempts_of(scope.saga).question(self._place, asked)
        return Invocation(scope, tool, {"question": asked}, (), {}, key)

    def _given(self, value: dict[str, Any]) -> Any:
        if "calls" in value:
            return [dict(call) for call in value["calls"]]
        if "model" in value and self._form is not None:
            return self._form.model_validate_json(value["model"])
        return value.get("text", value.get("model"))


def to_record(answer: Any) -> dict[str, Any]:
    """Return an answer as plain data."""
    answer = once(answer)
    if isinstance(answer, list):
        return {"calls": [_plain(call) for call in answer]}
    if isinstance(answer, BaseModel):
        return {"model": answer.model_dump_json()}
    return {"text": answer if isinstance(answer, str) else str(answer)}


def _plain(call: Any) -> dict[str, Any]:
    key, name, arguments = call_of(call)
    return {
        "id": key,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def once(answer: Any) -> Any:
    """Return an answer in which each call stands once."""
    if not isinstance(answer, list):
        return answer
    seen: set[tuple[str, str, str]] = set()
    kept = []
    for call in answer:
        known = call_of(call)
        if known[0] and known in seen:
            continue
        seen.add(known)
        kept.append(call)
    return kept
