"""What may stand in a policy file, field by field.

Rules of this part:

- A field that is not listed here is refused: a misspelt condition must not be a rule without one.
- Amounts may be numbers or texts; a text is read exactly.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

__all__ = ["CompensateForm", "LimitForm", "PolicyForm", "RuleForm", "ToolForm"]


class CompensateForm(Struct, forbid_unknown_fields=True, frozen=True):
    """A tool's inverse: a registered handler and its arguments, or another tool and its arguments.

    Attributes:
        handler, kwargs: the handler's name and its arguments; texts that begin with `$.` read the
            result, `$args.` the call's arguments, `$prepared.` what was prepared.
        tool, args: the same by a tool's name, as the MCP proxy has it.
        description: one line for the report.
    """

    handler: str | None = None
    kwargs: dict[str, Any] | None = None
    tool: str | None = None
    args: dict[str, Any] | None = None
    description: str = ""


class ToolForm(Struct, forbid_unknown_fields=True, frozen=True):
    """What is declared of one tool.

    Attributes:
        semantics: REVERSIBLE (or READ_ONLY), COMPENSABLE or IRREVERSIBLE.
        compensate: its inverse.
        policy_args: names for rules and limits, each read from the call's arguments by `$.` or
            `$args.`.
        tags: labels for rules, limits and halts.
    """

    semantics: str
    compensate: CompensateForm | None = None
    policy_args: dict[str, str] = {}
    tags: list[str] = []


class RuleForm(Struct, forbid_unknown_fields=True, frozen=True):
    """One rule; it holds when all of its conditions do.

    Attributes:
        name, then, reason: as for `Rule`.
        tool, tag, semantics: conditions on the tool; a list means any of them.
        arg: the argument that the next ones are about.
        exceeds, equals, one_of, not_one_of, matches: conditions on that argument.
        breaks_schema: a JSON Schema that the arguments do not fit.
    """

    name: str
    then: Literal["refuse", "ask", "allow"] = "refuse"
    reason: str = ""
    tool: str | list[str] | None = None
    tag: str | list[str] | None = None
    semantics: str | list[str] | None = None
    arg: str | None = None
    exceeds: int | float | str | None = None
    equals: str | int | float | bool | None = None
    one_of: list[str | int | float | bool] | None = None
    not_one_of: list[str | int | float | bool] | None = None
    matches: str | None = None
    breaks_schema: dict[str, Any] | None = None


class LimitForm(Struct, forbid_unknown_fields=True, frozen=True):
    """One limit: a budget with `arg` and `max_total`, or a rate with `max_calls`.

    Attributes:
        name, arg, max_total, max_calls: as for `BudgetLimit` and `RateLimit`.
        window: seconds, or a text such as "90s", "15m", "24h", "7d".
        scope: "by_tool", `{by_arg = "name"}`, or a list of these.
        tools, escalate_to_human: as for `BudgetLimit`.
    """

    name: str
    window: int | float | str
    arg: str | None = None
    max_total: int | float | str | None = None
    max_calls: int | None = None
    scope: str | dict[str, str] | list[str | dict[str, str]] | None = None
    tools: list[str] | None = None
    escalate_to_human: bool = False


class PolicyForm(Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file.

    Attributes:
        version: of this form; 1.
        mode: "enforce", or "observe" for a proxy that only watches.
        undeclared: what happens to tools that the file does not name: "allow" or "refuse".
        tools, rules, limits: see their own forms.
    """

    version: int = 1
    mode: Literal["enforce", "observe"] = "enforce"
    undeclared: Literal["allow", "refuse"] = "allow"
    tools: dict[str, ToolForm] = {}
    rules: list[RuleForm] = []
    limits: list[LimitForm] = []
