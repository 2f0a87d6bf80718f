"""Rules of the gate: a predicate over one call, and what follows when it holds.

Rules of this part:

- A predicate is a function or coroutine function of a `CallView` that answers True or False.
  Whatever else it does (raises, returns None, takes longer than its `timeout`) refuses the call:
  what cannot be evaluated refuses.
- The most severe answer wins: refuse, then ask a human, then allow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, Final

from agent_saga.controls import given
from agent_saga.controls.control import CallView, Control, Evaluate, Judge, Wait
from agent_saga.errors import ConfigurationError, RefusedError, one_line
from agent_saga.plugins.callables import is_async_callable, refuse_generators


class Verdict(IntEnum):
    """What the gate says of a call; the greater the more severe."""

    ALLOW = 0
    ASK = 1
    REFUSE = 2


RULES: Final = "rules"
_VERDICTS: Final = {"refuse": Verdict.REFUSE, "ask": Verdict.ASK, "allow": Verdict.ALLOW}
Predicate = Callable[[CallView], "bool | Awaitable[bool]"]


class Rule:
    """One rule of the gate.

    Args:
        name: how verdicts name it.
        when: the predicate, a function or a coroutine function; see the rules of this module.
        then: "refuse", "ask" or "allow".
        reason: why, for the model or the person that is refused.
        timeout: seconds that the predicate has; it then runs on a thread of the pool, or in a task.
            What holds the interpreter without a pause, such as a regular expression of one's own
            that tries too many ways, cannot be given up; `arg_matches` bounds its pattern.

    Raises:
        ConfigurationError: the predicate is no function that can answer, `then` is something else,
            or the timeout is no number of seconds above zero.
    """

    __slots__ = ("is_async", "name", "reason", "then", "timeout", "when")

    def __init__(
        self,
        name: str,
        when: Predicate,
        then: str = "refuse",
        reason: str = "",
        *,
        timeout: float | None = None,
    ) -> None:
        self.name = given.name("The name of a rule", name)
        refuse_generators("rule", name, when)
        verdict = _VERDICTS.get(then) if isinstance(then, str) else None
        if verdict is None:
            raise ConfigurationError(
                f"The rule {name!r} says {then!r}.", fix="Use 'refuse', 'ask' or 'allow'."
            )
        self.when = when
        self.then = verdict
        self.reason = given.words(f"The reason of {name!r}", reason) if reason != "" else ""
        self.timeout = seconds(f"The timeout of the rule {name!r}", timeout)
        self.is_async = is_async_callable(when)

    def follow(self, call: CallView, answer: object) -> None:
        """Do what follows from the predicate's answer.

        Raises:
            RefusedError: the rule refuses the call, or gave no answer.
        """
        if answer is False:
            return
        if answer is not True:
            raise self.broken(f"the rule answered {type(answer).__name__}, neither True nor False")
        if self.then is Verdict.REFUSE:
            raise self._refusal(call)
        if self.then is Verdict.ASK:
            call.ask(self.name, self.reason or f"the rule {self.name!r} asks for it")

    def _refusal(self, call: CallView) -> RefusedError:
        reason = self.reason or f"the rule {self.name!r} forbids it"
        return RefusedError(
            f"{call.tool} was refused by the rule {self.name!r}: {reason}.",
            rule=self.name,
            reason=reason,
            control=RULES,
        )

    def broken(self, reason: str) -> RefusedError:
        """Return the refusal of a call that this rule could not be evaluated for."""
        return RefusedError(
            f"The rule {self.name!r} could not be evaluated, so the call was refused: {reason}.",
            rule=self.name,
            reason=reason,
            fix="Mend the rule.",
            control=RULES,
        )


class Rules(Control):
    """All rules of one gate as a control.

    Rules that answer at once are asked first; a refusal by one of them spares the others' waits.

    Args:
        rules: the gate's own and those of plugins.
    """

    name = RULES
    reads_arguments = True

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._quick = tuple([r for r in rules if not r.is_async and r.timeout is None])
        self._slow = tuple([r for r in rules if r.is_async or r.timeout is not None])

    def check(self, call: CallView) -> Wait | None:
        """Judge a call by every rule; the most severe answer wins."""
        return self._judged(self._quick, call)

    def planned(self, call: CallView) -> Judge | None:
        """Leave out the rules that cannot hold for any call of this tool."""
        quick = tuple([rule for rule in self._quick if not _never(rule, call)])
        return partial(self._judged, quick) if quick or self._slow else None

    def _judged(self, quick: Sequence[Rule], call: CallView) -> Wait | None:
        for rule in quick:
            try:
                answer = rule.when(call)
            except Exception as error:
                raise rule.broken(f"the rule raised {one_line(error)}") from error
            if answer is not False:
                rule.follow(call, answer)
        return self._next(call, 0) if self._slow else None

    def _next(self, call: CallView, at: int) -> Wait | None:
        if at == len(self._slow):
            return None
        rule = self._slow[at]

        def then(answer: Any, error: Exception | None) -> Wait | None:
            if isinstance(error, TimeoutError):
                raise rule.broken("the rule did not answer in time") from error
            if error is not None:
                raise rule.broken(f"the rule raised {one_line(error)}") from error
            rule.follow(call, answer)
            return self._next(call, at + 1)

        what = f"the rule {rule.name!r}"
        return Wait(Evaluate(rule.when, (call,), rule.is_async, rule.timeout, what), then)


def _never(rule: Rule, call: CallView) -> bool:
    """Say whether the tool of a call alone keeps a rule from ever holding."""
    of_tool = getattr(rule.when, "of_tool", None)
    return of_tool is not None and of_tool(call) is False


def seconds(what: str, value: float | None) -> float | None:
    """Return a number of seconds above zero, or None when it was not given.

    Raises:
        ConfigurationError: it is something else.
    """
    return None if value is None else given.seconds(what, value)
