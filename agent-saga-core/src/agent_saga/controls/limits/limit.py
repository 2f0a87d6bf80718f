"""The limits that a program writes: `BudgetLimit` for amounts, `RateLimit` for calls.

Rules of this part:

- A limit polices the tools that `tools=` names. Without it, it polices every call that has the
  argument, every tool that declares it, and every effect of which nobody knows what it declares;
  a rate polices every call. A read of a tool that does not have the argument is none of its
  business.
- A policed call whose amount is missing, or is no finite number of zero or more, is refused.
- An authorisation is permanent: undoing an effect earns nothing back. What is counted is what was
  let through, not what was spent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from agent_saga.controls import given
from agent_saga.controls.amounts import Number, amount_of, text_of
from agent_saga.controls.control import CallView
from agent_saga.controls.limits.scopes import Scope
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ConfigurationError, RefusedError

__all__ = ["LIMITS", "BudgetLimit", "Limit", "RateLimit"]

LIMITS: Final = "limits"
LONGEST: Final = 10 * 366 * 86_400.0
_MISSING: Final = object()
_TAG: Final = "tag:"


class Limit:
    """What `BudgetLimit` and `RateLimit` have in common.

    Attributes:
        name: how verdicts and the store name it; limits of one name share their counts.
        arg: the argument that is added up; None counts calls.
        most: the most within the window.
        window: seconds.
        scope: what is counted apart, or None.
        escalate_to_human: a human is asked instead of a refusal.
        tools: patterns of the tools that it polices, or None.
    """

    __slots__ = ("arg", "escalate_to_human", "most", "name", "scope", "tools", "window")

    def __init__(
        self,
        name: str,
        arg: str | None,
        most: object,
        window: float,
        scope: Scope | None,
        tools: Iterable[str] | None,
        escalate_to_human: bool,
    ) -> None:
        self.name = given.name("The name of a limit", name)
        self.arg = arg
        self.most: Number = _most(name, most)
        self.window = given.seconds(f"The window of the limit {name!r}", window, longest=LONGEST)
        if scope is not None and not callable(scope):
            raise ConfigurationError(
                f"The scope of the limit {name!r} is no function.",
                fix="Use by_tool, by_arg('name') or combine(by_tool, by_arg('name')).",
            )
        self.scope = scope
        self.tools = _tools(name, tools)
        self.escalate_to_human = given.flag(
            f"escalate_to_human= of the limit {name!r}", escalate_to_human
        )

    def asked_of(self, call: CallView) -> Number | None:
        """Return how much a call wants of a limit that polices its tool; None for nothing.

        Raises:
            RefusedError: the call is policed, and how much it wants cannot be told.
        """
        if self.arg is None:
            return 1
        value = call.arguments.get(self.arg, _MISSING)
        if value is _MISSING:
            if self.tools is None and not _may_have(call, self.arg):
                return None
            raise self._uncounted(call, f"the call does not name its argument {self.arg!r}")
        try:
            return amount_of(value)
        except (TypeError, ValueError) as error:
            raise self._uncounted(
                call, f"its argument {self.arg!r} is no amount: {error}"
            ) from None

    def polices(self, call: CallView) -> bool:
        """Say whether the patterns of this limit, if any, name a call's tool, or a tag of it."""
        tool = call.tool
        return self.tools is None or any(
            tool == pattern
            or (pattern.endswith("*") and tool.startswith(pattern[:-1]))
            or (pattern.startswith(_TAG) and pattern[4:] in call.tags)
            for pattern in self.tools
        )

    def scope_of(self, call: CallView) -> str:
        """Return the count that a call belongs to.

        Raises:
            RefusedError: it cannot be told.
        """
        if self.scope is None:
            return ""
        try:
            text = self.scope(call)
        except Exception as error:
            raise self._uncounted(call, f"its scope cannot be told: {error}") from error
        if not isinstance(text, str):
            raise self._uncounted(call, f"its scope is a {type(text).__name__}, not a text")
        return text

    def _uncounted(self, call: CallView, reason: str) -> RefusedError:
        fix = f"Give {call.tool} its argument {self.arg!r} as a number" if self.arg else "Mend it"
        if self.tools is None:
            fix += ", or name the tools that the limit is for (tools=…)"
        return RefusedError(
            f"{call.tool} was refused by the limit {self.name!r}: {reason}.",
            rule=self.name,
            reason=reason,
            fix=f"{fix}; execute(…) takes it in arguments={{…}}.",
            control=LIMITS,
        )

    def __repr__(self) -> str:
        what = "calls" if self.arg is None else self.arg
        return f"<{type(self).__name__} {self.name}: {text_of(self.most)} {what}>"


class BudgetLimit(Limit):
    """The most that an argument may add up to within a sliding window.

    Args:
        name: how verdicts and the store name it; limits of one name share their counts.
        arg: the argument that is added up.
        max_total: the most; a number, a `Decimal`, or a text that writes one.
        window: seconds; what was authorised longer ago no longer counts.
        scope: what is counted apart: `by_tool`, `by_arg(…)`, `combine(…)`; all together when not
            given.
        tools: names of the tools that it polices, beginnings of names that end in `*`, or tags as
            `tag:NAME`; see the rules of this module for what holds when not given.
        escalate_to_human: ask a human instead of refusing; what is approved counts as well.

    Raises:
        ConfigurationError: an argument cannot be used.

    Crash: what was authorised stays counted, except for calls whose intent never came to be; those
    are handed back when the process is known to be dead. Fails closed.
    """

    __slots__ = ()

    def __init__(
        self,
        name: str,
        arg: str,
        max_total: Any,
        window: float,
        scope: Scope | None = None,
        *,
        tools: Iterable[str] | None = None,
        escalate_to_human: bool = False,
    ) -> None:
        given.name(f"arg= of the budget {name!r}", arg)
        super().__init__(name, arg, max_total, window, scope, tools, escalate_to_human)


class RateLimit(Limit):
    """The most calls within a sliding window.

    Args:
        name: how verdicts and the store name it; limits of one name share their counts.
        max_calls: the most; a whole number.
        window: seconds.
        scope: what is counted apart: `by_tool`, `by_arg(…)`, `combine(…)`; all together when not
            given.
        tools: names of the tools that it polices, beginnings of names that end in `*`, or tags as
            `tag:NAME`; every tool when not given.
        escalate_to_human: ask a human instead of refusing; what is approved counts as well.

    Raises:
        ConfigurationError: an argument cannot be used.

    Crash and failure: as for `BudgetLimit`.
    """

    __slots__ = ()

    def __init__(
        self,
        name: str,
        max_calls: int,
        window: float,
        scope: Scope | None = None,
        *,
        tools: Iterable[str] | None = None,
        escalate_to_human: bool = False,
    ) -> None:
        if type(max_calls) is not int:
            raise ConfigurationError(f"max_calls of {name!r} is a whole number, not {max_calls!r}.")
        super().__init__(name, None, max_calls, window, scope, tools, escalate_to_human)


def _may_have(call: CallView, arg: str) -> bool:
    """Say whether a call without an argument may hide it: nobody knows what the tool declares."""
    if call.declares is not None and "*" not in call.arguments:
        return arg in call.declares
    return call.semantics is not ActionSemantics.REVERSIBLE


def _most(name: str, value: object) -> Number:
    try:
        return amount_of(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The most of the limit {name!r} is no amount: {error}.") from None


def _tools(name: str, tools: Iterable[str] | None) -> tuple[str, ...] | None:
    if tools is None:
        return None
    patterns = given.several(f"tools= of the limit {name!r}", tools, str)
    if not patterns:
        raise ConfigurationError(
            f"tools= of the limit {name!r} takes names of tools, or beginnings that end in '*'."
        )
    return tuple([_tool(name, pattern) for pattern in patterns])


def _tool(limit: str, pattern: str) -> str:
    """Return a pattern that stands for tools; one that stands for none would limit nothing."""
    if not pattern.startswith(_TAG):
        return given.tool(f"A tool of the limit {limit!r}", pattern)
    tag = given.name(f"A tag of the limit {limit!r}", pattern.removeprefix(_TAG))
    if "*" in tag:
        raise ConfigurationError(
            f"A tag of the limit {limit!r} is {given.shown(tag)}.", fix="Name a tag exactly."
        )
    return _TAG + tag
