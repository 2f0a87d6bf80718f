"""Declares a world's tools through the public API: an undo, a prober and `prepare` for each.

Rules of this part:

- Only what a user has. A tool that nothing can take back is IRREVERSIBLE; a human is asked, and
  approves just what the task's own user wants.
- The world answers at once and is over when it answered, so nothing arrives late: `settle_after` is
  0, and probers say that their "no" is final.
- A call that nothing could take back as things are is made by another tool, declared as
  IRREVERSIBLE: what a human lets through then stands, and nothing waits for an inverse.
- Secrets stay in the session; what an undo needs of the arguments is kept by `prepare`.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import os
from collections.abc import Callable
from typing import Any, Final, Protocol

from agent_saga import AgentKit, Applied, Approval, CannotTell, NotApplied, PreFlightGate, Rule
from bench.worlds import faults, plans
from bench.worlds.traces import Trace
from bench.worlds.world import Args, Given, GoldCall, Task, World, WorldError


class Reach(Protocol):
    """How tools reach the world."""

    def agent(self, tool: str, args: Args) -> Any:
        """Make the agent's next call."""

    def aside(self, tool: str, /, **args: Any) -> Any:
        """Make a call of an inverse, a prober or a look."""

    def undoing(self, step: str) -> None:
        """Say that an inverse of a step begins."""

    def undone(self, step: str, *, well: bool, again: bool) -> None:
        """Say that an inverse of a step is over; see `Struck`."""


class User:
    """Whom the gate asks: the user of a task, who approves what the task is about.

    Args:
        task: the task.
        answers: False for one who is not there.
    """

    def __init__(self, task: Task, *, answers: bool) -> None:
        self._wanted = [(call.tool, call.args) for call in task.calls]
        self._answers = answers
        self.secrets: frozenset[str] = frozenset()

    def ask(self, request: Any) -> Approval:
        """Approve a call that the user wants, with these arguments; no other."""
        wanted = self.wants(request)
        return Approval(self._answers and wanted, "user", "as wanted" if wanted else "not wanted")

    def wants(self, call: Any) -> bool:
        """Say whether the task is about a call, with these arguments."""
        shown = self._shown(call.arguments)
        name = plain(call.tool)
        return any(tool == name and self._shown(args) == shown for tool, args in self._wanted)

    def _shown(self, args: Args) -> dict[str, Any]:
        """Return what a human sees of arguments: secrets are masked."""
        return {key: value for key, value in args.items() if key not in self.secrets}


_FOR_GOOD: Final = ".for_good"
"""The end of the name of a tool that makes a call which nothing takes back as things are."""


def plain(tool: str) -> str:
    """Return the world's own name of a tool."""
    return tool.removesuffix(_FOR_GOOD)


class Session:
    """Secrets that inverses need; they never get into the log."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}
        self._given: dict[str, Any] = {}
        self.newest: dict[str, Any] = {}
        """Those of the last call that had any."""

    def keep(self, secrets: dict[str, Any]) -> str:
        """Keep a call's secrets; return by what they are found again."""
        self.newest |= secrets
        mark = hashlib.sha256(repr(sorted(secrets.items())).encode()).hexdigest()[:16]
        self._kept[mark] = secrets
        return mark

    def given(self, answer: Any, names: frozenset[str]) -> None:
        """Note what a tool answered with: it takes the place of older ones, as a new token does."""
        if isinstance(answer, dict):
            self._given |= {key: answer[key] for key in names & answer.keys()}

    def of(self, mark: str) -> dict[str, Any]:
        """Return the secrets of a call, as they are now."""
        kept = self._kept.get(mark, {})
        return kept | {key: value for key, value in self._given.items() if key in kept}


class Declared:
    """The tools of a task.

    Args:
        world, task: what is played.
        reach: how the tools reach the world.
        user: who is asked before what cannot be undone.
        wal: the log; in memory when not given.
        timeouts: seconds that a tool may take, by name.
    """

    def __init__(
        self,
        world: World,
        task: Task,
        reach: Reach,
        user: User,
        *,
        wal: str = "memory:",
        timeouts: dict[str, float] | None = None,
    ) -> None:
        self._world, self._reach, self._user = world, reach, user
        self._timeouts = timeouts or {}
        self.session = Session()
        self.traces: list[Trace] = []
        """What was declared to be left behind, of the calls that were undone."""
        self.broken: list[str] = []
        """Errors of the tables' own looks: they are ours, and no refusal."""
        self._steps = itertools.count()
        self.told: list[bool] = []
        """For each question to a prober that can see the effect: whether it could tell."""
        user.secrets = world.secrets
        lasting = Rule("lasting", self._lasts, "ask", "nothing could take it back as things are")
        unnamed = Rule("unnamed", self._unnamed, "ask", "the user named nothing like this")
        gate = PreFlightGate(rules=[lasting, unnamed], approval_provider=user)
        self.kit = AgentKit("worlds", wal=wal, gate=gate)
        names = dict.fromkeys(call.tool for call in task.calls)
        self.tools = {name: self._declare(name) for name in names}

    def _declare(self, name: str) -> Callable[..., Any]:
        plan = self._world.plan(name)

        def forward(**args: Any) -> Any:
            answer = self._reach.agent(name, args)
            self.session.given(answer, self._world.secrets)
            return answer

        async def forward_async(**args: Any) -> Any:
            return await forward(**args)

        options: dict[str, Any] = {"name": name, "timeout": self._timeouts.get(name)}
        fn = forward_async if inspect.iscoroutinefunction(self._reach.agent) else forward
        if isinstance(plan, plans.Write):
            tool = self._write(name, plan, fn, options)
            if plan.always:
                return tool
            final = plans.Final("as things are", plan.look, plan.effect, plan.guarded)
            options["name"] = f"{name}{_FOR_GOOD}"
            return self._routed(name, tool, self._final(final, fn, options))
        if isinstance(plan, plans.Final):
            return self._final(plan, fn, options)
        return self.kit.safe_tool(fn, "REVERSIBLE", **options)

    def _routed(
        self, name: str, tool: Callable[..., Any], final: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return what makes a call by one of two tools, as things are."""

        def call(**args: Any) -> Any:
            self._keep(args)
            try:
                lasts = faults.lasts(self._world, GoldCall(name, args), self._reach.aside)
            except Exception as error:
                self.broken.append(repr(error))
                raise
            return (final if lasts else tool)(**args)

        return call

    def _keep(self, args: Args) -> str:
        return self.session.keep({key: args[key] for key in self._world.secrets & args.keys()})

    def _final(
        self, plan: plans.Final, forward: Callable[..., Any], options: dict[str, Any]
    ) -> Callable[..., Any]:
        if plan.look is None:
            return self.kit.safe_tool(forward, "IRREVERSIBLE", **options)
        tool = self.kit.safe_tool(
            forward,
            "IRREVERSIBLE",
            prepare=lambda args: self._prepared(plan, args),
            settle_after=0,
            **options,
        )
        tool.probe(lambda prepared: self._probed(plan, prepared))
        return tool

    def _write(
        self,
        name: str,
        plan: plans.Write,
        forward: Callable[..., Any],
        options: dict[str, Any],
    ) -> Callable[..., Any]:
        tool = self.kit.safe_tool(
            forward,
            "COMPENSABLE",
            prepare=lambda args: self._prepared(plan, args),
            settle_after=0,
            idempotent=plan.again,
            **options,
        )
        if plan.harmless:
            tool.undo(idempotent=plan.again, null_safe=True)(
                lambda prepared: self._undo(name, plan, prepared, None)
            )
        else:
            tool.undo(lambda prepared, result: self._undo(name, plan, prepared, result))
        tool.probe(lambda prepared: self._probed(plan, prepared))
        return tool

    def _lasts(self, call: Any) -> bool:
        """Say whether nothing could take a call back, as things are now; a rule of the gate."""
        if call.tool.endswith(_FOR_GOOD) or isinstance(self._world.plan(call.tool), plans.Final):
            return False  # it is asked about for that alone
        args = dict(call.arguments) | self.session.newest
        try:
            return faults.lasts(self._world, GoldCall(call.tool, args), self._reach.aside)
        except Exception as error:
            self.broken.append(repr(error))
            raise

    def _unnamed(self, call: Any) -> bool:
        """Say whether a call needs a name that the user never gave; a rule of the gate."""
        plan = self._world.plan(plain(call.tool))
        return isinstance(plan, plans.Left) and plan.named and not self._user.wants(call)

    def _prepared(self, plan: plans.Write | plans.Final, args: dict[str, Any]) -> Any:
        """Read what the undo and the prober need."""
        assert plan.look is not None
        step = f"{os.getpid()}-{next(self._steps)}"
        written = {key: value for key, value in args.items() if key not in self._world.secrets}
        prepared = {"step": step, "args": written, "mark": self._keep(args)}
        try:
            return prepared | {"seen": plan.look(self._reach.aside, Given(args))}
        except WorldError as error:
            return prepared | {"error": str(error)}
        except Exception as error:
            self.broken.append(repr(error))
            raise

    def _undo(self, name: str, plan: plans.Write, prepared: Any, result: Any) -> None:
        args = Given(prepared["args"] | self.session.of(prepared["mark"]))
        before = prepared["seen"]
        step = prepared["step"]
        self.traces += plan.trace(args, before, result)
        well = False
        self._reach.undoing(step)
        try:
            plan.undo(self._reach.aside, args, before, result)
            well = True
        finally:
            self._reach.undone(step, well=well, again=plan.again)
        if plan.restores and plan.now(self._reach.aside, args, before) != before:
            raise RuntimeError(f"{name} was taken back, and the world is not as it was.")

    def _probed(self, plan: plans.Write | plans.Final, prepared: Any) -> Any:
        assert plan.look is not None
        args = Given(prepared["args"] | self.session.of(prepared["mark"]))
        if "seen" not in prepared:
            # Whoever is refused the look was refused the call, too, where the row says so.
            if plan.refuses(prepared["error"]):
                return NotApplied(prepared["error"], final=True)
            return CannotTell(prepared["error"])
        before = prepared["seen"]
        now = plan.now(self._reach.aside, args, before)
        effect = plan.effect(args, before, now)
        unshown = isinstance(plan, plans.Write) and plan.unshown(args, before, now)
        if self._shown(plan, args, before, effect) and not unshown:
            self.told.append(effect is not plans.UNCLEAR)
        if effect is plans.UNCLEAR:
            return CannotTell("no tool shows it")
        if effect is plans.MISSING:
            return NotApplied("nothing changed", final=True)
        return Applied(effect)

    def _shown(self, plan: plans.Write | plans.Final, args: Args, seen: Any, effect: Any) -> bool:
        """Say whether some tool of the world shows the effect."""
        if isinstance(plan, plans.Final):
            return effect is not plans.UNCLEAR
        return plan.visible and not (effect is plans.UNCLEAR and plan.needs(args, seen))
