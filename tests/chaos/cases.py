"""Random agents for crash cases: every kind of tool, retries, savepoints, steps at the same time.

What an agent does follows from a number alone, so that a case can be run again by it. Every third
number is an agent that resumes its saga when it is run again, and may suspend it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from agent_saga import AgentKit, Applied, NotApplied, RetryPolicy, Settings
from agent_saga_testing.crash import Bench, bench, point

POINTS = ("before an effect", "after an effect", "before an inverse", "after an inverse")

kit = AgentKit(
    "cases",
    settings=Settings(settle=0.5, settle_after=0.0, inverse_delay=0.0, inverse_attempts=2),
)


class BusyError(Exception):
    """The provider says that it did nothing, and may be asked again."""


def _do(name: str, key: str) -> dict[str, Any]:
    point("before an effect")
    made = bench().world.do(name, key=key)
    point("after an effect")
    return made


def _undo(made: dict[str, Any], key: str | None) -> None:
    point("before an inverse")
    bench().world.undo(made["id"], key=key)
    point("after an inverse")


def _found(key: str) -> Applied | NotApplied:
    found = bench().world.find(key)
    return Applied(found) if found else NotApplied("the world has nothing of it")


def _retried(times: int) -> RetryPolicy:
    return RetryPolicy(max_retries=times, base_delay=0.001, retry_on=(ConnectionError,))


def _charge(times: int) -> Any:
    """Its provider knows keys: effect and inverse may be repeated, and an effect can be found."""
    retry = _retried(times)

    @kit.tool("COMPENSABLE", name=f"charge{times}", idempotent=True, retry=retry)
    def charge(name: str, *, idempotency_key: str) -> dict[str, Any]:
        return _do(name, idempotency_key)

    @charge.undo(idempotent=True)
    def refund(result: dict[str, Any], *, idempotency_key: str) -> None:
        _undo(result, idempotency_key)

    @charge.probe
    def find(*, idempotency_key: str) -> Applied | NotApplied:
        return _found(idempotency_key)

    return charge


CHARGES = [_charge(times) for times in (0, 1, 2)]


@kit.tool("COMPENSABLE")
def book(name: str, *, idempotency_key: str) -> dict[str, Any]:
    """Its provider undoes twice what it is told to undo twice."""
    return _do(name, idempotency_key)


@book.undo
def cancel(result: dict[str, Any]) -> None:
    """Undo it."""
    _undo(result, None)


@book.probe
def find_booking(*, idempotency_key: str) -> Applied | NotApplied:
    """Say whether it happened."""
    return _found(idempotency_key)


@kit.tool("COMPENSABLE")
def note(name: str, *, idempotency_key: str) -> dict[str, Any]:
    """Nobody can say whether it happened when its answer is lost."""
    return _do(name, idempotency_key)


@note.undo
def erase(result: dict[str, Any]) -> None:
    """Undo it."""
    _undo(result, None)


@kit.tool("COMPENSABLE")
async def send(name: str, *, idempotency_key: str) -> dict[str, Any]:
    """An asynchronous one."""
    await asyncio.sleep(0)
    return _do(name, idempotency_key)


@send.undo(idempotent=True)
def unsend(result: dict[str, Any], *, idempotency_key: str) -> None:
    """Undo it."""
    _undo(result, idempotency_key)


@send.probe
def find_sent(*, idempotency_key: str) -> Applied | NotApplied:
    """Say whether it happened."""
    return _found(idempotency_key)


@kit.tool("REVERSIBLE")
def read(name: str) -> str:
    """Only look."""
    return name


SYNC = (*CHARGES, book, note, read)
ASYNC = (*SYNC, send)


class PlanFailedError(Exception):
    """The agent's plan failed."""


class Plan:
    """What an agent does: steps, some of them at the same time, savepoints, and how it ends."""

    def __init__(self, number: int) -> None:
        draw = random.Random(number)
        self.resumes = resumes(number)
        self.is_async = draw.random() < 0.4
        self.faults = draw.choice(["", "", "", "lose forward", "lose inverse", "fail inverse"])
        tools = ASYNC if self.is_async else SYNC
        self.groups = [
            [draw.choice(tools) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
            for _ in range(draw.randint(1, 4))
        ]
        places = range(len(self.groups))
        self.fails_at = draw.choice([None, None, draw.choice(places)])
        self.savepoint_at = draw.choice([None, draw.choice(places)])
        self.suspends_at = draw.choice([None, draw.choice(places)]) if self.resumes else None

    def boundary(self) -> Any:
        """Return the boundary of the whole."""
        return kit.transaction(saga_id="case", resume=True) if self.resumes else kit.transaction()

    def part(self, place: int) -> Any:
        """Return the savepoint of a group, or nothing."""
        return kit.transaction("part") if place == self.savepoint_at else contextlib.nullcontext()


def resumes(number: int) -> bool:
    """Say whether the agent of a number resumes its saga."""
    return number % 3 == 0


def run(here: Bench) -> None:
    """Do what the number of the case says."""
    plan = Plan(int(str(here.argument)))
    what, _, kind = plan.faults.partition(" ")
    if what == "lose":
        here.world.lose_answers(kind=kind)
    elif what == "fail":
        here.world.fail_before(kind=kind, error=ConnectionError)
    if plan.is_async:
        asyncio.run(_run_async(plan))
    else:
        _run_sync(plan)


async def _run_async(plan: Plan) -> None:
    async with plan.boundary() as saga:
        for place, group in enumerate(plan.groups):
            async with _async(plan.part(place)):
                names = [f"{tool.__name__} {place}.{nth}" for nth, tool in enumerate(group)]
                calls = [tool(name) for tool, name in zip(group, names, strict=True)]
                ended = await asyncio.gather(*calls, return_exceptions=True)
                _go_on(plan, place, saga, ended)


@contextlib.asynccontextmanager
async def _async(part: Any) -> Any:
    if isinstance(part, contextlib.nullcontext):
        yield
    else:
        async with part:
            yield


def _run_sync(plan: Plan) -> None:
    with plan.boundary() as saga, ThreadPoolExecutor(3) as pool:
        for place, group in enumerate(plan.groups):
            with plan.part(place):
                names = [f"{tool.__name__} {place}.{nth}" for nth, tool in enumerate(group)]
                if len(group) == 1:
                    ended: list[Any] = [group[0](names[0])]
                else:
                    calls = [
                        pool.submit(copy_context().run, _kept, tool, name)
                        for tool, name in zip(group, names, strict=True)
                    ]
                    ended = [call.result() for call in calls]
                _go_on(plan, place, saga, ended)


def _kept(tool: Any, name: str) -> Any:
    try:
        return tool(name)
    except Exception as error:
        return error


def _go_on(plan: Plan, place: int, saga: Any, ended: Any) -> None:
    for one in ended:
        if isinstance(one, BaseException):
            raise one
    if place == plan.suspends_at and _first_time():
        saga.suspend("waits for somebody")
    if place == plan.fails_at:
        raise PlanFailedError


def _first_time() -> bool:
    """Say whether the agent comes here for the first time; any process of it."""
    mark = bench().log.parent / "was here"
    if mark.exists():
        return False
    mark.touch()
    return True
