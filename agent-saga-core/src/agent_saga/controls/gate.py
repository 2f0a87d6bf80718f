"""The gate before every effect: judges a call, and says who must be asked.

Rules of this part:

- One path: `judge` returns None (go on) or an `Ask`, and raises a `RefusedError` otherwise. No
  verdict is ever only returned.
- Every IRREVERSIBLE call needs a human's approval. Without a provider it is refused, naming the
  setting.
- After any wait the call is judged again, with the rules that were approved already satisfied.
- A call whose arguments nobody named cannot be approved: the approval would be bound to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_saga.controls.approvals import ApprovalProvider
from agent_saga.controls.rules import CallView, Rule, Verdict
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ApprovalRequired, ConfigurationError, RefusedError

IRREVERSIBLE_RULE = "irreversible"
_ALLOW: Final = Verdict.ALLOW


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
        self.approval_timeout = approval_timeout

    def with_rules(self, more: Iterable[Rule]) -> PreFlightGate:
        """Return this gate with further rules, for example those of plugins."""
        rules = tuple(more)
        if not rules:
            return self
        return PreFlightGate((*self.rules, *rules), self.approval_provider, self.approval_timeout)

    def concerns(self, semantics: ActionSemantics) -> bool:
        """Say whether a call of these semantics has to be judged at all."""
        return bool(self.rules) or semantics is ActionSemantics.IRREVERSIBLE

    def judge(self, view: CallView, approved: frozenset[str] = frozenset()) -> Ask | None:
        """Judge a call.

        Args:
            view: the call.
            approved: the names of the rules that a human has approved it under.

        Raises:
            RefusedError: the call is refused.
        """
        asking: tuple[str, str] | None = None
        if view.semantics is ActionSemantics.IRREVERSIBLE and IRREVERSIBLE_RULE not in approved:
            asking = (IRREVERSIBLE_RULE, "nothing can undo it")
        for rule in self.rules:
            verdict = rule.judge(view)
            if verdict is _ALLOW:
                continue
            if verdict is Verdict.REFUSE:
                raise _refusal(view, rule)
            if rule.name not in approved and asking is None:
                asking = (rule.name, rule.reason or f"the rule {rule.name!r} asks for it")
        return None if asking is None else self._ask(view, *asking)

    def _ask(self, view: CallView, rule: str, reason: str) -> Ask:
        if not view.named:
            raise RefusedError(
                f"{view.tool} needs an approval, and its arguments are not named.",
                rule=rule,
                reason="an approval is bound to the arguments of the call",
                fix="Give execute(…, arguments={…}).",
            )
        if self.approval_provider is None:
            raise ApprovalRequired(
                f"{view.tool} needs a human's approval, and there is nobody to ask.",
                rule=rule,
                reason=reason,
                fix="Give the gate somebody to ask: "
                "PreFlightGate(approval_provider=ConsoleApprovals()).",
            )
        return Ask(rule, reason, self.approval_provider, self.approval_timeout)


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


def _refusal(view: CallView, rule: Rule) -> RefusedError:
    reason = rule.reason or f"the rule {rule.name!r} forbids it"
    return RefusedError(
        f"{view.tool} was refused by the rule {rule.name!r}: {reason}.",
        rule=rule.name,
        reason=reason,
    )
