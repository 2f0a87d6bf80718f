"""`Policy`: what a policy file says, loaded, and loaded again on request.

Rules of this part:

- A file is taken as a whole or not at all. Loading it again replaces everything at once; if the new
  file has an error, or cannot hold in a gate that uses the policy, that is raised and the old
  policy stays in force.
- Rules and limits of the policy hold beside the gate's own and those of plugins; the most severe
  answer wins. Boundaries take them when they open; a kill switch is what stops those that are open.
- What the file declares of a tool and what the code declares must agree. A call whose code says
  something else is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary, WeakMethod

from agent_saga.controls import given
from agent_saga.controls.control import CallView
from agent_saga.controls.installed import INSTALLED
from agent_saga.controls.limits.limit import Limit
from agent_saga.controls.policy.build import ToolPolicy, limit_of, rule_of, tool_of
from agent_saga.controls.policy.form import PolicyForm
from agent_saga.controls.policy.reading import parsed, read_policy
from agent_saga.controls.rules import Rule
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Policy", "Snapshot", "watched"]

UNDECLARED: Final = "policy: undeclared tools"
SEMANTICS: Final = "policy: declared semantics"
Check: TypeAlias = "Callable[[Snapshot], None]"


class Snapshot:
    """One state of a policy; never changed.

    Attributes:
        mode, rules, limits, tools: as for `Policy`.
    """

    __slots__ = ("limits", "mode", "rules", "tools")

    def __init__(self, form: PolicyForm) -> None:
        self.mode = form.mode
        self.tools: Mapping[str, ToolPolicy] = MappingProxyType(
            {name: tool_of(name, tool) for name, tool in form.tools.items()}
        )
        for tool in self.tools.values():
            inverse = None if tool.compensate is None else self.tools.get(tool.compensate.handler)
            tool.risky_inverse = (
                inverse is not None and inverse.semantics is ActionSemantics.IRREVERSIBLE
            )
        rules = [rule_of(rule) for rule in form.rules]
        if self.tools:
            rules.append(_semantics_rule(self.tools))
        if form.undeclared == "refuse":
            rules.append(_undeclared_rule(self.tools))
        self.rules: tuple[Rule, ...] = tuple(rules)
        self.limits: tuple[Limit, ...] = tuple([limit_of(limit) for limit in form.limits])
        _check_names([*self.rules, *self.limits])


_watching: Final[WeakKeyDictionary[Policy, list[WeakMethod[Check]]]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def watched(policy: Policy, check: Check) -> None:
    """Have a method of whoever uses a policy look at what it says when it is loaded again.

    Args:
        policy: the policy.
        check: raises a ConfigurationError if it cannot be used; it keeps nobody alive.
    """
    with _lock:
        known = [one for one in _watching.get(policy, ()) if one() is not None]
        _watching[policy] = [*known, WeakMethod(check)]


def _check(policy: Policy, now: Snapshot) -> None:
    with _lock:
        known = [one() for one in _watching.get(policy, ())]
    for check in known:
        if check is not None:
            check(now)


class Policy:
    """A policy file, or the same as plain data.

    Args:
        content: the policy as plain data, in the form of a policy file.

    Raises:
        ConfigurationError: it has an error; the message names the place.

    Give it to a gate: `PreFlightGate(policy=Policy.load("policy.toml"))`.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.path: Path | None = None
        if not isinstance(content, Mapping):
            raise ConfigurationError(f"A Policy takes a mapping, not {given.shown(content)}.")
        self._now = Snapshot(parsed(dict(content), "the policy"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Policy:
        """Return the policy that a file holds: TOML, JSON, or YAML with the extra `yaml`.

        Raises:
            ConfigurationError: it cannot be read, or has an error; the message names the place.
        """
        from pathlib import Path  # noqa: PLC0415 - slow to load

        policy = cls({})
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise ConfigurationError(f"A policy is loaded from a path, not {given.shown(path)}.")
        policy.path = Path(path).absolute()
        policy._now = _loaded(policy.path)
        return policy

    def reload(self) -> None:
        """Read the file again; what it says holds for the boundaries that open from then on.

        Raises:
            ConfigurationError: it has an error, this policy came from no file, or a gate that uses
                it cannot: it has a name of the gate's own, or only observes. The old policy stays
                in force.
        """
        if self.path is None:
            raise ConfigurationError("This policy came from no file; there is nothing to reload.")
        now = _loaded(self.path)
        try:
            _check(self, now)
        except ConfigurationError as error:
            raise _wrong(self.path, error) from error
        self._now = now
        INSTALLED.changed()

    @property
    def snapshot(self) -> Snapshot:
        """What holds now, all of it from one file as it was loaded at one time."""
        return self._now

    @property
    def mode(self) -> str:
        """How it is meant: "enforce", or "observe" for a proxy that only watches."""
        return self._now.mode

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that hold now."""
        return self._now.rules

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that hold now."""
        return self._now.limits

    @property
    def tools(self) -> Mapping[str, ToolPolicy]:
        """What is declared of tools now, by their names."""
        return self._now.tools

    def __repr__(self) -> str:
        now = self._now
        return (
            f"<Policy {self.path or ''} {len(now.tools)} tools, {len(now.rules)} rules, "
            f"{len(now.limits)} limits>"
        )


def _loaded(path: Path) -> Snapshot:
    form = read_policy(path)
    try:
        return Snapshot(form)
    except ConfigurationError as error:
        raise _wrong(path, error) from error


def _wrong(path: Path, error: ConfigurationError) -> ConfigurationError:
    return ConfigurationError(f"The policy {path} has an error: {error.message}", fix=error.fix)


def _semantics_rule(tools: Mapping[str, ToolPolicy]) -> Rule:
    def differs(call: CallView) -> bool:
        found = tools.get(call.tool)
        return found is not None and found.semantics is not call.semantics

    return Rule(SEMANTICS, differs, reason="code and policy declare different semantics")


def _undeclared_rule(tools: Mapping[str, ToolPolicy]) -> Rule:
    return Rule(
        UNDECLARED,
        lambda call: call.tool not in tools,
        reason="the policy does not name this tool",
    )


def _check_names(judges: list[Rule | Limit]) -> None:
    seen: set[str] = set()
    for one in judges:
        if one.name in seen:
            raise ConfigurationError(f"two rules or limits are named {one.name!r}.")
        seen.add(one.name)
