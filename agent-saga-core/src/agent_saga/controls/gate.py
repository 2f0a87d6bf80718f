"""The gate before every effect: judges a call, and says who must be asked.

Rules of this part:

- One order: kill switch and quarantine, breaker, limits, rules, then a human. One path: `judge`
  returns None (go on), an `Ask` or a `Wait`, and raises a `RefusedError` otherwise. No verdict is
  ever only returned.
- Every refusal says which rule, why, and what would change it; the log holds it as a record.
- Every IRREVERSIBLE call needs a human's approval. Without a provider it is refused, naming the
  setting.
- After any wait for a human the call is judged again, with what was approved already satisfied.
- A call whose arguments nobody named cannot be approved: the approval would be bound to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from agent_saga.controls.approvals import ApprovalProvider
from agent_saga.controls.control import CallView, Control, Use, Wait
from agent_saga.controls.rules import Rule, Rules, seconds
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ApprovalRequired, ConfigurationError, RefusedError

IRREVERSIBLE_RULE: Final = "irreversible"
APPROVALS: Final = "approvals"
_IRREVERSIBLE: Final = ActionSemantics.IRREVERSIBLE

Judge = Callable[[CallView], "Wait | None"]


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
        approval_timeout: seconds that a human has to answer; the setting when not given.

    Raises:
        ConfigurationError: a rule is no `Rule` or has the name of another one, under which an
            approval would count for both; or the provider cannot ask.
    """

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        approval_provider: ApprovalProvider | None = None,
        approval_timeout: float | None = None,
    ) -> None:
        self.rules = tuple(rules)
        _check_rules(self.rules)
        if approval_provider is not None and not callable(getattr(approval_provider, "ask", None)):
            raise ConfigurationError("The approval provider has no `ask` method.")
        self.approval_provider = approval_provider
        self.approval_timeout = seconds("The approval timeout", approval_timeout)

    def with_rules(self, more: Iterable[Rule]) -> PreFlightGate:
        """Return this gate with further rules, for example those of plugins."""
        rules = tuple(more)
        if not rules:
            return self
        return PreFlightGate((*self.rules, *rules), self.approval_provider, self.approval_timeout)

    def composed(self, before: Sequence[Control] = ()) -> Gate:
        """Return what the engine asks.

        Args:
            before: the controls that judge before rules do, in their order.
        """
        own = [Rules(self.rules)] if self.rules else []
        return Gate((*before, *own), self.approval_provider, self.approval_timeout)


class Gate:
    """A gate put together with its controls, as the engine asks it.

    Attributes:
        controls: all of them, in their order.
        checks, rechecks, releases, endings, records: their methods, each only where it is made use
            of; so that what no control needs costs nothing.
        reads_arguments: a verdict counts for the arguments that were judged.
        provider, timeout: who can ask a human, and how long a human has.
    """

    __slots__ = (
        "checks",
        "controls",
        "endings",
        "provider",
        "reads_arguments",
        "rechecks",
        "records",
        "releases",
        "timeout",
    )

    def __init__(
        self,
        controls: Sequence[Control] = (),
        provider: ApprovalProvider | None = None,
        timeout: float | None = None,
    ) -> None:
        self.controls = tuple(controls)
        self.provider = provider
        self.timeout = timeout
        self.reads_arguments = any(control.reads_arguments for control in self.controls)
        self.checks: tuple[Judge, ...] = tuple([c.check for c in self.controls])
        self.rechecks: tuple[Judge, ...] = tuple([c.recheck for c in self._with("recheck")])
        self.releases: tuple[Callable[[CallView], Use | None], ...] = tuple(
            [c.release for c in reversed(self._with("release"))]
        )
        self.endings: tuple[Callable[[CallView, str], Use | None], ...] = tuple(
            [c.ended for c in self._with("ended")]
        )
        self.records = tuple([(c.name, c.recorded) for c in self._with("recorded")])

    def _with(self, method: str) -> list[Control]:
        ours = getattr(Control, method)
        return [c for c in self.controls if getattr(type(c), method) is not ours]

    def judge(self, call: CallView, at: int = 0) -> Wait | Ask | None:
        """Judge a call.

        Args:
            call: the call.
            at: the place of the control to begin with; those before it have answered.

        Returns:
            None lets the call go on; an `Ask` needs a human; a `Wait` needs an answer first, after
            which the judging goes on behind its place.

        Raises:
            RefusedError: the call is refused.
        """
        place = at
        for check in self.checks[at:] if at else self.checks:
            wait = check(call)
            if wait is not None:
                wait.at = place
                return wait
            place += 1
        if call.semantics is _IRREVERSIBLE or call.asks is not None:
            return self._asking(call)
        return None

    def _asking(self, call: CallView) -> Ask | None:
        if call.semantics is _IRREVERSIBLE and IRREVERSIBLE_RULE not in call.approved:
            return self._ask(call, IRREVERSIBLE_RULE, "nothing can undo it")
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


def _check_rules(rules: Iterable[Rule]) -> None:
    names = {IRREVERSIBLE_RULE}
    for rule in rules:
        if not isinstance(rule, Rule):
            raise ConfigurationError(f"The gate takes Rules, not {type(rule).__name__}.")
        if rule.name in names:
            raise ConfigurationError(
                f"Two rules of the gate are named {rule.name!r}; an approval under one would count "
                "for both.",
                fix="Give every rule a name of its own.",
            )
        names.add(rule.name)
