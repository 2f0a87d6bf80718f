"""Runs one trajectory of a world with one fault in it, in this process, and judges the world.

Rules of this part:

- The agent makes the recorded calls in order. An error that a tool answers with is read, as an
  agent would, and the run goes on; the struck call ends it.
- Each model runs the way that it happens: cancelling and siblings on an event loop, the others on a
  plain thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent_saga import OutcomeUnknown, RefusedError, RollbackReport, SagaAborted
from bench.worlds import faults, plans
from bench.worlds.declaring import Declared, User
from bench.worlds.faults import GaveUp, Struck
from bench.worlds.outcome import Outcome, Seen, Told, judged, seen
from bench.worlds.world import Args, Place, Task, Tools, World, WorldError

_READ = (ConnectionError, WorldError)
_EXPECTED = (*_READ, GaveUp, RefusedError, TimeoutError, OutcomeUnknown, asyncio.CancelledError)
"""What ends a run here; anything else is a fault of ours, and no run."""
_RETRIES = 3


class Run:
    """One trajectory with one fault.

    Args:
        world: the world.
        task: the task whose calls the agent makes.
        model: how one call goes wrong.
        at: which one.
        present: somebody answers when the gate asks, and approves what the task wants.
        calls: what the agent calls, where that is not what the task wants.
        declare: what declares its tools.
    """

    def __init__(
        self,
        world: World,
        task: Task,
        model: str,
        at: int,
        *,
        present: bool = False,
        calls: Task | None = None,
        declare: type[Declared] = Declared,
    ) -> None:
        self._world, self._task, self._model, self._at = world, task, model, at
        self._acted = calls or task
        self.place = world.open(task)
        self._struck = Struck(world, self.place, model, at)
        slow = self._acted.calls[at].tool if model == faults.TIMEOUT else ""
        limits = {slow: world.patience} if slow else {}
        reach = (
            Pausing(self._struck) if model in (faults.CANCELLED, faults.PARALLEL) else self._struck
        )
        self._present = present
        user = User(task, answers=present)
        self._declared = declare(world, self._acted, reach, user, timeouts=limits)

    def outcome(self) -> Outcome:
        """Run it, and judge."""
        if self._model in (faults.CANCELLED, faults.PARALLEL):
            told = asyncio.run(self._told_async())
        else:
            told = self._told()
        found = _seen(self._struck, self._declared)
        if told.refused and not self._present and self._model in faults.SUCCEEDS:
            found = replace(found, would_succeed=self._succeeds())
        fault = (self._model, self._at)
        found = replace(found, broken=tuple(self._declared.broken))
        return judged(self._world, self._task, fault, self.place, told, found)

    def _succeeds(self) -> bool:
        """Run it once more with a user who approves, and say whether it ends well."""
        again = Run(self._world, self._task, self._model, self._at, present=True).outcome()
        return not again.failed and again.declared

    def _told(self) -> Told:
        try:
            with self._declared.kit.transaction(on_unsettled="warn") as saga:
                self._act()
        except SagaAborted as aborted:
            return told(aborted.report, aborted.cause)
        return told(saga.report, None)

    async def _told_async(self) -> Told:
        try:
            async with self._declared.kit.transaction(on_unsettled="warn") as saga:
                await self._act_async()
        except SagaAborted as aborted:
            return told(aborted.report, aborted.cause)
        except asyncio.CancelledError as cancelled:
            return told(getattr(cancelled, "saga_report", None), cancelled)
        return told(saga.report, None)

    # --- the agent -------------------------------------------------------------------------------

    def _act(self) -> None:
        for number, call in enumerate(self._acted.calls):
            tool = self._declared.tools[call.tool]
            try:
                tool(**call.args)
            except _READ:
                if number != self._at:
                    continue
                if self._model != faults.RETRY:
                    raise
                self._again(tool, call.args)
            if number == self._at and self._model == faults.GIVEN_UP:
                raise GaveUp(f"after {call.tool}")

    def _again(self, tool: Callable[..., Any], args: Mapping[str, Any]) -> None:
        """Repeat a call blindly, as frameworks and models do, and go on once it answers."""
        for _ in range(_RETRIES):
            self._struck.again()
            with contextlib.suppress(*_READ):
                tool(**args)
                break
        self._struck.go_on()

    async def _act_async(self) -> None:
        calls = list(self._acted.calls)
        for number, call in enumerate(calls):
            if number == self._at and self._model == faults.PARALLEL:
                beside = calls[number : number + 2]
                if not siblings(self._world, self._acted, number):
                    beside = beside[:1]
                await asyncio.gather(*(self._call(one.tool, one.args) for one in beside))
            try:
                await self._call(call.tool, call.args)
            except _READ:
                if number == self._at:
                    raise

    async def _call(self, tool: str, args: Args) -> Any:
        return await self._declared.tools[tool](**args)


def _seen(struck: Struck, declared: Declared) -> Seen:
    return seen(struck, declared.traces, declared.told)


class Pausing:
    """Reaches the world from an event loop, and is interrupted there.

    Args:
        struck: the place whose call goes wrong.
    """

    def __init__(self, struck: Struck) -> None:
        self._struck = struck

    async def agent(self, tool: str, args: Args) -> Any:
        """Make the agent's next call; a cancelled one is cancelled once it took effect."""
        before = self._struck.struck
        try:
            answer = self._struck.agent(tool, args)
        finally:
            await asyncio.sleep(0)
        if self._struck.struck and not before and self._struck.cancels:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        return answer

    def aside(self, tool: str, /, **args: Any) -> Any:
        """Make a call of an inverse, a prober or a look."""
        return self._struck.aside(tool, **args)

    def undoing(self, step: str) -> None:
        """Say that an inverse of a step begins."""
        self._struck.undoing(step)

    def undone(self, step: str, *, well: bool, again: bool) -> None:
        """Say that an inverse of a step is over."""
        self._struck.undone(step, well=well, again=again)


def siblings(world: World, task: Task, number: int) -> bool:
    """Say whether a call and the next one can be made in either order: only such are made at once.

    A world with one working directory or one session is no place for calls that depend on it.
    """
    pair = task.calls[number : number + 2]
    ends = []
    for order in (pair, pair[::-1]):
        place = world.open(task)
        try:
            for call in (*task.calls[:number], *order):
                place.call(call.tool, call.args)
        except WorldError:
            return False
        ends.append(place.snapshot())
    return len(pair) == 2 and ends[0] == ends[1] and _reads_alike(world, task, number)


def _reads_alike(world: World, task: Task, number: int) -> bool:
    """Say whether what the first call changes is seen the same, whichever comes first."""
    looks = []
    for order in (task.calls[:number], (*task.calls[:number], task.calls[number + 1])):
        place = world.open(task)
        for call in order:
            place.call(call.tool, call.args)
        plan = world.plan(task.calls[number].tool)
        args = task.calls[number].args
        looks.append(plan.look(_tools(place), args) if isinstance(plan, plans.Write) else None)
    return bool(looks[0] == looks[1])


def _tools(place: Place) -> Tools:
    return lambda tool, /, **args: place.call(tool, args)


def told(report: RollbackReport | None, cause: BaseException | None) -> Told:
    """Return what a report says.

    Args:
        report: the report; None where the boundary wrote nothing.
        cause: what ended the run; None if it went to its end.
    """
    refused = str(cause) if isinstance(cause, RefusedError) else ""
    odd = "" if cause is None or isinstance(cause, _EXPECTED) else repr(cause)
    if report is None:
        return Told(cause is not None, True, refused, odd=odd)
    return Told(cause is not None, report.clean, refused, report.summary(), odd)
