"""The gate before every effect: judges a call, and says who must be asked.

Rules of this part:

- One order: kill switch and quarantine, breaker, limits, rules, then a human. One path: `judge`
  returns None (go on), an `Ask` or a `Wait`, and raises a `RefusedError` otherwise. No verdict is
  ever only returned.
- Every refusal says which rule, why, and what would change it; the log holds it as a record.
- Every IRREVERSIBLE call needs a human's approval, and so does a call whose inverse is itself
  irreversible. Without a provider it is refused, naming the setting.
- After any wait for a human the call is judged again, with what was approved already satisfied.
- A call whose arguments nobody named cannot be approved: the approval would be bound to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from agent_saga.controls import given
from agent_saga.controls.approvals import ApprovalProvider
from agent_saga.controls.control import CallView, Control, Judge, Use, Wait
from agent_saga.controls.limits.control import limits_control
from agent_saga.controls.limits.limit import Limit
from agent_saga.controls.limits.memory import MemoryLimitStore
from agent_saga.controls.limits.shared import LimitStore
from agent_saga.controls.policy.build import ToolPolicy
from agent_saga.controls.policy.policy import Policy, Snapshot, watched
from agent_saga.controls.rules import Rule, Rules, seconds
from agent_saga.controls.switch.kill_switch import KillSwitch
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ApprovalRequired, ConfigurationError, RefusedError

IRREVERSIBLE_RULE: Final = "irreversible"
INVERSE_RULE: Final = "irreversible-inverse"
FAILURE_RULE: Final = "on_tool_failure"
"""Under which it is asked whether a run may go on; a name of ours as the two above are."""

APPROVALS: Final = "approvals"
_IRREVERSIBLE: Final = ActionSemantics.IRREVERSIBLE
_MOST_PLANS: Final = 4096
_NONE_DECLARED: Final[Mapping[str, ToolPolicy]] = MappingProxyType({})

Ended = Callable[[CallView, str, "BaseException | None"], "Use | None"]


class Ask:
    """A verdict: a human must approve.

    Attributes:
        rule, reason: what asks, and why.
        provider: who can ask.
        timeout: seconds that the human has, or None for the setting.
    """

    __slots__ = ("provider", "reason", "rule", "timeout")

    def __init__(
        self, rule: str, reason: str, provider: ApprovalProvider, timeout: float | None
    ) -> None:
        self.rule = rule
        self.reason = reason
        self.provider = provider
        self.timeout = timeout


class PreFlightGate:
    """Judges every call before its effect.

    Args:
        rules: `Rule`s; the most severe verdict wins.
        approval_provider: who can ask a human; see `controls.approvals`.
        approval_timeout: seconds that a human has to answer; the setting when not given. Then the
            answer is no.
        limits: `BudgetLimit`s and `RateLimit`s; a call takes of all that police it, or of none.
        kill_switch: a `KillSwitch` beside that of the log, which every gate asks.
        policy: a `Policy`, or the path of its file; its rules and limits hold beside these.

    Raises:
        ConfigurationError: a rule is no `Rule`, a limit is no limit, or one has the name of another
            one, under which an approval would count for both; the provider cannot ask; or the gate
            and the provider's policy both say how long a human has.
    """

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        approval_provider: ApprovalProvider | None = None,
        approval_timeout: float | None = None,
        *,
        limits: Iterable[Limit] = (),
        kill_switch: KillSwitch | None = None,
        policy: Policy | str | os.PathLike[str] | None = None,
    ) -> None:
        self.rules = given.several("The gate's rules=", rules, Rule)
        self.limits = given.several("The gate's limits=", limits, Limit)
        self.policy = _policy(policy)
        if self.policy is None:
            _check_names([*self.rules, *self.limits])
        else:
            self._check_policy(self.policy.snapshot)
            watched(self.policy, self._check_policy)
        if kill_switch is not None and not isinstance(kill_switch, KillSwitch):
            raise ConfigurationError(f"{type(kill_switch).__name__} is no kill switch.")
        self.kill_switch = kill_switch
        if approval_provider is not None and not callable(getattr(approval_provider, "ask", None)):
            raise ConfigurationError("The approval provider has no `ask` method.")
        self.approval_provider = approval_provider
        self.approval_timeout = seconds("The approval timeout", approval_timeout)
        own = getattr(approval_provider, "answer_within", None)
        if own is not None and approval_timeout is not None:
            raise ConfigurationError(
                f"approval_timeout={approval_timeout:g} of the gate and timeout={own:g} of the "
                "provider's policy both say how long a human has.",
                fix=f"Say it once: ApprovalPolicy(timeout={approval_timeout:g}), or leave one out.",
            )

    def with_rules(self, more: Iterable[Rule]) -> PreFlightGate:
        """Return this gate with further rules, for example those of plugins."""
        rules = tuple(more)
        if not rules:
            return self
        return PreFlightGate(
            (*self.rules, *rules),
            self.approval_provider,
            self.approval_timeout,
            limits=self.limits,
            kill_switch=self.kill_switch,
            policy=self.policy,
        )

    def _check_policy(self, policy: Snapshot) -> None:
        """Look whether what a policy says can hold beside this gate's own rules and limits.

        Raises:
            ConfigurationError: it only observes, or one of its names is taken.
        """
        if policy.mode != "enforce":
            raise ConfigurationError(
                "The policy only observes, and a gate enforces.",
                fix='Write mode = "enforce" when it is meant to hold.',
            )
        _check_names([*self.rules, *policy.rules, *self.limits, *policy.limits])

    def composed(
        self,
        before: Sequence[Control] = (),
        limit_store: Callable[[], MemoryLimitStore | LimitStore] = MemoryLimitStore,
    ) -> Gate:
        """Return what the engine asks.

        Args:
            before: the controls that judge before limits and rules do, in their order.
            limit_store: returns where limits are counted; asked only if there are limits.
        """
        own: list[Control] = []
        policy = None if self.policy is None else self.policy.snapshot  # loaded anew at any moment
        rules = self.rules if policy is None else (*self.rules, *policy.rules)
        limits = self.limits if policy is None else (*self.limits, *policy.limits)
        _check_names([*rules, *limits])
        if limits:
            own.append(limits_control(limits, limit_store()))
        if rules:
            own.append(Rules(rules))
        declared = {} if policy is None else policy.tools
        return Gate(
            (*before, *own), self.approval_provider, self.approval_timeout, declared=declared
        )


class Gate:
    """A gate put together with its controls, as the engine asks it.

    Attributes:
        controls: all of them, in their order. What they have to judge of a tool's calls is laid out
            at the first one; see `Control.planned`.
        checks, rechecks, releases, endings, records: their methods, each only where it is made use
            of; so that what no control needs costs nothing.
        hears: of each that is told of endings, of which tools' successes (see `Control.hears`).
        calm: says, without a wait, that no control would keep a step (see `Control.calm`); None
            where one of them always looks at the step.
        stops: judges of calls that waited for a thread. undoings: judges before each inverse.
        quiet: the same as `calm`, of those only that judge again before the call.
        reads_arguments: a verdict counts for the arguments that were judged.
        declared: what a policy declares of tools, by their names.
        provider, timeout: who can ask a human, and how long a human has.
    """

    __slots__ = (
        "_plans",
        "calm",
        "checks",
        "controls",
        "declared",
        "endings",
        "hears",
        "provider",
        "quiet",
        "reads_arguments",
        "rechecks",
        "records",
        "releases",
        "stops",
        "timeout",
        "undoings",
    )

    def __init__(
        self,
        controls: Sequence[Control] = (),
        provider: ApprovalProvider | None = None,
        timeout: float | None = None,
        declared: Mapping[str, ToolPolicy] = _NONE_DECLARED,
    ) -> None:
        self.controls = tuple(controls)
        self.declared = declared
        self.provider = provider
        self.timeout = timeout
        self.reads_arguments = any(control.reads_arguments for control in self.controls)
        self.checks: tuple[Judge, ...] = tuple([c.check for c in self.controls])
        self._plans: dict[tuple[str, frozenset[str]], tuple[Judge, ...]] = {}
        self.rechecks: tuple[Judge, ...] = tuple([c.recheck for c in self._with("recheck")])
        self.releases: tuple[Callable[[CallView], Use | None], ...] = tuple(
            [c.release for c in reversed(self._with("release"))]
        )
        told = self._with("ended")
        self.endings: tuple[Ended, ...] = tuple([c.ended for c in told])
        self.hears = tuple([c.hears for c in told])
        self.records = tuple([(c.name, c.recorded) for c in self._with("recorded")])
        self.stops: tuple[Judge, ...] = tuple([c.stopping for c in self._with("stopping")])
        self.undoings: tuple[Callable[[str], Wait | None], ...] = tuple(
            [c.undoing for c in self._with("undoing")]
        )
        able = len(self._with("calm")) == len(self.controls)
        self.calm = _all_calm(self.controls) if able else None
        self.quiet = _all_calm(self._with("stopping"))

    def _with(self, method: str) -> list[Control]:
        ours = getattr(Control, method)
        return [c for c in self.controls if getattr(type(c), method) is not ours]

    def judge(self, call: CallView, at: int = 0) -> Wait | Ask | None:
        """Judge a call.

        Args:
            call: the call.
            at: the place in the plan to begin with; those before it have answered.

        Returns:
            None lets the call go on; an `Ask` needs a human; a `Wait` needs an answer first, after
            which the judging goes on behind its place.

        Raises:
            RefusedError: the call is refused.
        """
        try:
            plan = self._plans[call.tool, call.tags]
        except KeyError:
            plan = self._planned(call)
        for check in plan[at:] if at else plan:
            wait = check(call)
            if wait is not None:
                wait.at = plan.index(check, at)
                return wait
        if call.semantics is _IRREVERSIBLE or call.asks is not None or call.risky_inverse:
            return self._asking(call)
        return None

    def _planned(self, call: CallView) -> tuple[Judge, ...]:
        """Lay out what has to be judged of a tool's calls."""
        judges = [control.planned(call) for control in self.controls]
        plan = tuple([judge for judge in judges if judge is not None])
        if len(self._plans) >= _MOST_PLANS:  # whoever makes up names of tools fills no memory
            self._plans.clear()
        self._plans[call.tool, call.tags] = plan
        return plan

    def _asking(self, call: CallView) -> Ask | None:
        if call.semantics is _IRREVERSIBLE and IRREVERSIBLE_RULE not in call.approved:
            return self._ask(call, IRREVERSIBLE_RULE, "nothing can undo it")
        if call.risky_inverse and INVERSE_RULE not in call.approved:
            return self._ask(call, INVERSE_RULE, "nothing can undo its inverse")
        return self._ask(call, *call.asks[0]) if call.asks else None

    def _ask(self, call: CallView, rule: str, reason: str) -> Ask:
        if not call.named:
            raise RefusedError(
                f"{call.tool} needs an approval, and its arguments are not named.",
                rule=rule,
                reason="an approval is bound to the arguments of the call",
                fix="Give execute(…, arguments={…}).",
                control=APPROVALS,
            )
        if self.provider is None:
            raise ApprovalRequired(
                f"{call.tool} needs a human's approval, and there is nobody to ask.",
                rule=rule,
                reason=reason,
                fix="Give the gate somebody to ask: "
                "PreFlightGate(approval_provider=ConsoleApprovals()).",
                control=APPROVALS,
            )
        return Ask(rule, reason, self.provider, self.timeout)


def _all_calm(controls: Sequence[Control]) -> Callable[..., bool]:
    """Return what says that no control would keep a step; quick, since every step asks it."""
    if not controls:
        return _always
    if any(type(control).calm is Control.calm for control in controls):
        return _never
    calms = [control.calm for control in controls]
    if len(calms) == 1:
        return calms[0]
    return lambda *, look: all(calm(look=look) for calm in calms)


def _always(*, look: bool) -> bool:  # noqa: ARG001 - the form of `Control.calm`
    return True


def _never(*, look: bool) -> bool:  # noqa: ARG001 - the form of `Control.calm`
    return False


def _policy(policy: Policy | str | os.PathLike[str] | None) -> Policy | None:
    if isinstance(policy, (str, os.PathLike)):
        policy = Policy.load(policy)
    if policy is None:
        return None
    if not isinstance(policy, Policy):
        raise ConfigurationError(f"policy= takes a Policy or a path, not {type(policy).__name__}.")
    return policy


def _check_names(judges: Iterable[Rule | Limit]) -> None:
    names = {IRREVERSIBLE_RULE, INVERSE_RULE, FAILURE_RULE}
    for one in judges:
        if one.name in names:
            raise ConfigurationError(
                f"Two rules or limits of the gate are named {one.name!r}; an approval under one "
                "would count for both.",
                fix="Give each a name of its own.",
            )
        names.add(one.name)
