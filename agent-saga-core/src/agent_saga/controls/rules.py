"""Rules of the gate: a predicate over one call, and what follows when it holds.

Rules of this part:

- A predicate is a plain function of a `CallView` that answers True or False. Whatever else it does
  (raises, returns None) refuses the call: what cannot be evaluated refuses.
- The most severe answer wins: refuse, then ask a human, then allow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ConfigurationError, RefusedError


class Verdict(IntEnum):
    """What the gate says of a call; the greater the more severe."""

    ALLOW = 0
    ASK = 1
    REFUSE = 2


class CallView:
    """One call as rules see it.

    Attributes:
        tool: the tool's name.
        semantics: what kind of effect it has.
        arguments: by name, read-only.
        tags: the tool's labels.
        named: the caller named the arguments (a bare `execute` may not).
    """

    __slots__ = ("arguments", "named", "semantics", "tags", "tool")

    def __init__(
        self,
        tool: str,
        semantics: ActionSemantics,
        arguments: Mapping[str, Any],
        tags: frozenset[str],
        *,
        named: bool = True,
    ) -> None:
        self.tool = tool
        self.semantics = semantics
        self.arguments = MappingProxyType(arguments)
        self.tags = tags
        self.named = named


_ALLOW: Final = Verdict.ALLOW
Predicate = Callable[[CallView], bool]


class Rule:
    """One rule of the gate.

    Args:
        name: how verdicts name it.
        when: the predicate; see the rules of this module.
        then: "refuse", "ask" or "allow".
        reason: why, for the model or the person that is refused.

    Raises:
        ConfigurationError: the predicate is asynchronous or no function, or `then` is something
            else.
    """

    __slots__ = ("name", "reason", "then", "when")

    def __init__(self, name: str, when: Predicate, then: str = "refuse", reason: str = "") -> None:
        if not callable(when) or inspect.iscoroutinefunction(when):
            raise ConfigurationError(f"The rule {name!r} needs a plain function as its predicate.")
        verdict = {"refuse": Verdict.REFUSE, "ask": Verdict.ASK, "allow": Verdict.ALLOW}.get(then)
        if verdict is None:
            raise ConfigurationError(
                f"The rule {name!r} says {then!r}.", fix="Use 'refuse', 'ask' or 'allow'."
            )
        self.name = name
        self.when = when
        self.then = verdict
        self.reason = reason

    def judge(self, view: CallView) -> Verdict:
        """Return this rule's verdict.

        Raises:
            RefusedError: the predicate raised or gave no answer.
        """
        try:
            answer = self.when(view)
        except Exception as error:
            raise self._refusal(f"the rule raised {type(error).__name__}: {error}") from error
        if answer is False:
            return _ALLOW
        if answer is True:
            return self.then
        raise self._refusal(f"the rule answered {type(answer).__name__}, neither True nor False")

    def _refusal(self, reason: str) -> RefusedError:
        return RefusedError(
            f"The rule {self.name!r} could not be evaluated, so the call was refused: {reason}.",
            rule=self.name,
            reason=reason,
            fix="Mend the rule.",
        )


def tool_is(name: str) -> Predicate:
    """Return a predicate: the tool has this name, or a name under the prefix `NAME.*`."""
    if name.endswith(".*"):
        prefix = name[:-1]
        return lambda view: view.tool.startswith(prefix)
    return lambda view: view.tool == name


def semantics_is(semantics: ActionSemantics | str) -> Predicate:
    """Return a predicate: the tool has these semantics."""
    wanted = ActionSemantics.parse(semantics)
    return lambda view: view.semantics is wanted


def arg_exceeds(arg: str, limit: float | Decimal) -> Predicate:
    """Return a predicate: this argument is a number above the limit.

    An argument that is there and is no finite number cannot be judged, which refuses the call. So
    does a call that may hide it: one whose arguments nobody named, or that has positional
    arguments without a name. Any other call without the argument does not exceed anything.

    Raises:
        ConfigurationError: the limit is no finite number.
    """
    try:
        bound = _number(limit)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The limit of {arg!r} is no finite number: {limit!r}.") from error

    def exceeds(view: CallView) -> bool:
        if arg not in view.arguments:
            if not view.named or "*" in view.arguments:
                raise LookupError(f"the call does not name its argument {arg!r}")
            return False
        value = view.arguments[arg]
        return (value if type(value) is int else _number(value)) > bound

    return exceeds


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise TypeError(f"{value!r} is no amount")
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is no amount") from error
    if not number.is_finite():
        raise ValueError(f"{value!r} is not finite")
    return number
