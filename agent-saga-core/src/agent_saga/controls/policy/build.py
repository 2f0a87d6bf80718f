"""From what stands in a policy file to rules, limits and declarations of tools.

Rules of this part:

- Every error names the entry it stands in: "rules: 'big-wires': …".
- A rule without any condition is refused: it would hold for every call, which is written as
  `tool = "*"`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from agent_saga.controls import predicates as p
from agent_saga.controls.control import CallView
from agent_saga.controls.given import name as a_name
from agent_saga.controls.given import words
from agent_saga.controls.limits.limit import BudgetLimit, Limit, RateLimit
from agent_saga.controls.limits.scopes import Scope, by_arg, by_tool, combine
from agent_saga.controls.policy.form import CompensateForm, LimitForm, RuleForm, ToolForm
from agent_saga.controls.rules import Rule
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.domain.templates import Template, check_path, read_path
from agent_saga.errors import CompensationError, ConfigurationError

__all__ = ["ToolPolicy", "limit_of", "rule_of", "tool_of"]

T = TypeVar("T")
_ARGUMENTS: Final = frozenset({"result", "args"})
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WINDOW: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.ASCII)


class ToolPolicy:
    """What a policy declares of one tool.

    Attributes:
        name: the tool's name.
        semantics: what kind of effect it has.
        compensate: its inverse by name, or None.
        policy_args: names for rules and limits, with the paths that they are read from.
        tags: labels.
        risky_inverse: its inverse is a tool that the policy declares IRREVERSIBLE.
    """

    __slots__ = ("compensate", "name", "policy_args", "risky_inverse", "semantics", "tags")

    def __init__(self, name: str, form: ToolForm) -> None:
        self.name = name
        self.semantics = ActionSemantics.parse(form.semantics)
        self.compensate = None if form.compensate is None else _template(form.compensate)
        self.policy_args: Mapping[str, str] = MappingProxyType(form.policy_args)
        for argument, path in form.policy_args.items():
            a_name("an argument for rules and limits", argument)
            check_path(path, _ARGUMENTS)
        self.tags = frozenset([a_name("a tag of it", tag) for tag in form.tags])
        self.risky_inverse = False
        if self.semantics is ActionSemantics.IRREVERSIBLE and self.compensate is not None:
            raise ConfigurationError("it is IRREVERSIBLE and has an inverse; it cannot be both.")

    def complete(self, call: CallView) -> None:
        """Add to a call what the policy says of its tool: arguments, tags, a risky inverse.

        An argument that the policy reads from elsewhere and that is not there is left out, also if
        the call has another argument of that name: it is read from where the policy says, or not
        at all.
        """
        call.tags |= self.tags
        call.risky_inverse = call.risky_inverse or self.risky_inverse
        if not self.policy_args:
            return
        found = dict(call.arguments)
        sources = {"result": call.arguments, "args": call.arguments}
        for name, path in self.policy_args.items():
            found.pop(name, None)
            with contextlib.suppress(CompensationError):
                found[name] = read_path(path, sources)
        call.arguments = MappingProxyType(found)
        if call.declares is not None:
            call.declares |= self.policy_args.keys()


def tool_of(name: str, form: ToolForm) -> ToolPolicy:
    """Return what is declared of a tool.

    Raises:
        ConfigurationError: it does not fit together; the message names the tool.
    """
    return _told(f"tools: {name!r}", lambda: ToolPolicy(_exactly(name), form))


def _exactly(name: str) -> str:
    """Return the name of one tool; what is declared under another one would hold for none."""
    if words("its name", name, longest=300) != name or not name.isprintable() or name[-1] == "*":
        raise ConfigurationError(
            "it names no tool.", fix="Name each tool exactly as the program does."
        )
    return name


def rule_of(form: RuleForm) -> Rule:
    """Return the rule that stands in a file.

    Raises:
        ConfigurationError: it has no condition, or one that cannot be used.
    """
    return _told(f"rules: {form.name!r}", lambda: _rule(form))


def limit_of(form: LimitForm) -> Limit:
    """Return the limit that stands in a file.

    Raises:
        ConfigurationError: it is neither a budget nor a rate, or has a value that cannot be used.
    """
    return _told(f"limits: {form.name!r}", lambda: _limit(form))


def _told(where: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error.message}", fix=error.fix) from error


def _rule(form: RuleForm) -> Rule:
    conditions = [*_on_tool(form), *_on_argument(form)]
    if form.breaks_schema is not None:
        conditions.append(p.breaks_schema(form.breaks_schema))
    if not conditions:
        raise ConfigurationError(
            "it has no condition, so it would hold for every call.",
            fix='Give it one; tool = "*" means every tool.',
        )
    when = conditions[0] if len(conditions) == 1 else p.all_of(*conditions)
    return Rule(form.name, when, form.then, form.reason)


def _on_tool(form: RuleForm) -> list[p.Test]:
    kinds: list[tuple[str | list[str] | None, Callable[[str], p.Test]]] = [
        (form.tool, _tool_is),
        (form.tag, p.tag_is),
        (form.semantics, p.semantics_is),
    ]
    found = []
    for given, predicate in kinds:
        if given is not None:
            words = [given] if isinstance(given, str) else given
            if not words:
                raise ConfigurationError("an empty list of tools, tags or semantics never holds.")
            tests = [predicate(word) for word in words]
            found.append(tests[0] if len(tests) == 1 else p.any_of(*tests))
    return found


def _tool_is(pattern: str) -> p.Test:
    if pattern == "*":
        return lambda _: True
    return p.tool_is(pattern)


def _on_argument(form: RuleForm) -> list[p.Test]:
    arg = form.arg
    tests = (form.exceeds, form.equals, form.one_of, form.not_one_of, form.matches)
    if arg is None:
        if any(test is not None for test in tests):
            raise ConfigurationError("it has a condition on an argument and names none (arg = …).")
        return []
    found: list[p.Test] = []
    if form.exceeds is not None:
        found.append(p.arg_exceeds(arg, form.exceeds))
    if form.equals is not None:
        found.append(p.arg_in(arg, [form.equals]))
    if form.one_of is not None:
        found.append(p.arg_in(arg, form.one_of))
    if form.not_one_of is not None:
        found.append(p.not_(p.arg_in(arg, form.not_one_of)))
    if form.matches is not None:
        found.append(p.arg_matches(arg, form.matches))
    if not found:
        raise ConfigurationError(
            f"it names the argument {arg!r} and no condition on it.",
            fix="Add exceeds, equals, one_of, not_one_of or matches.",
        )
    return found


def _limit(form: LimitForm) -> Limit:
    window, scope = _seconds(form.window), _scope(form.scope)
    if form.max_calls is not None and form.max_total is None and form.arg is None:
        return RateLimit(
            form.name,
            form.max_calls,
            window,
            scope,
            tools=form.tools,
            escalate_to_human=form.escalate_to_human,
        )
    if form.max_calls is None and form.max_total is not None and form.arg is not None:
        return BudgetLimit(
            form.name,
            form.arg,
            form.max_total,
            window,
            scope,
            tools=form.tools,
            escalate_to_human=form.escalate_to_human,
        )
    raise ConfigurationError(
        "it is neither a budget nor a rate.", fix="Give arg and max_total, or max_calls alone."
    )


def _seconds(window: int | float | str) -> float:
    if not isinstance(window, str):
        return window
    found = _WINDOW.fullmatch(window.strip())
    if found is None:
        raise ConfigurationError(
            f"the window {window!r} is no time.", fix='Write seconds, or "90s", "15m", "24h", "7d".'
        )
    return float(found[1]) * _UNITS[found[2]]


def _scope(given: Any) -> Scope | None:
    if given is None:
        return None
    if isinstance(given, list):
        scopes = [one for one in map(_scope, given) if one is not None]
        return scopes[0] if len(scopes) == 1 else combine(*scopes)
    if given == "by_tool":
        return by_tool
    if isinstance(given, dict) and set(given) == {"by_arg"}:
        return by_arg(given["by_arg"])
    raise ConfigurationError(
        f"the scope {given!r} is unknown.", fix='Write "by_tool" or {by_arg = "name"}.'
    )


def _template(form: CompensateForm) -> Template:
    by_handler = form.handler is not None and form.tool is None and form.args is None
    by_tool_name = form.tool is not None and form.handler is None and form.kwargs is None
    if by_handler:
        return Template(form.handler or "", form.kwargs or {}, form.description)
    if by_tool_name:
        return Template(form.tool or "", form.args or {}, form.description)
    raise ConfigurationError(
        "its compensate is neither a handler with kwargs nor a tool with args."
    )
