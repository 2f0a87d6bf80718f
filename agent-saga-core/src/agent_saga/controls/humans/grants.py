"""Standing grants: yes to calls of one tool, up to an amount, until a time, counted.

Rules of this part:

- A grant is for one tool and one rule, has an end, and covers at most so many calls. With an
  amount, it covers calls until the sum of one argument reaches it; a call whose argument is no
  finite amount of zero or more is not covered.
- A call takes its share once, by step and generation; a share is given back only by a step that did
  not start. So a crash leaves too little, never too much.
- Whoever gave it may not be among those who ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_saga.controls.amounts import add as plus
from agent_saga.controls.amounts import amount_of, number_of, text_of
from agent_saga.controls.humans.names import one_of
from agent_saga.errors import ApprovalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.state.document import Doc

__all__ = ["PREFIX", "Grant", "Taker", "add", "give_back", "key_of", "take"]

PREFIX: Final = "grant/"
_MOST: Final = 100
"""How many grants of one tool hold at the same time."""


class Grant(NamedTuple):
    """What a person grants beforehand.

    Attributes:
        id: names the grant.
        tool, rule: what it is for.
        by, note: who grants it, and a remark.
        until: when it is over, in microseconds since the epoch.
        uses: how many calls it covers.
        arg: the argument whose sum is bounded; empty for none.
        up_to: the bound, as a decimal number in text; empty for none.
    """

    id: str
    tool: str
    rule: str
    by: str
    note: str
    until: int
    uses: int
    arg: str = ""
    up_to: str = ""


class Taker(NamedTuple):
    """A call that wants to be covered.

    Attributes:
        step, generation: which call it is.
        rule: what asks for an approval.
        arguments: the call's arguments, by name.
        requesters: who asks.
    """

    step: str
    generation: int
    rule: str
    arguments: Mapping[str, Any]
    requesters: Sequence[str]

    @property
    def key(self) -> str:
        """The name under which its share is kept."""
        return f"{self.step}#{self.generation}"


def key_of(tool: str) -> str:
    """Return the key of the document of a tool's grants; names of tools may be long."""
    return PREFIX + sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def add(doc: Doc | None, grant: Grant, *, now: int) -> tuple[Doc, None]:
    """Add a grant to those of its tool; grants that are over are taken out.

    Raises:
        ApprovalError: the tool has too many grants.
    """
    kept = [one for one in (doc or {"grants": []})["grants"] if now < one["until"]]
    if len(kept) >= _MOST:
        raise ApprovalError(f"{grant.tool} has {_MOST} grants already.", fix="Wait until one ends.")
    return {"tool": grant.tool, "grants": [*kept, {**grant._asdict(), "shares": {}}]}, None


def take(doc: Doc | None, taker: Taker, *, now: int) -> tuple[Doc | None, Doc | None]:
    """Take a call's share of the first grant that covers it; returns that grant, or None."""
    for place, grant in enumerate(doc["grants"] if doc is not None else ()):
        if taker.key in grant["shares"]:
            return doc, grant
        share = _share(grant, taker, now)
        if doc is not None and share is not None:
            took = {**grant, "shares": {**grant["shares"], taker.key: share}}
            grants = [*doc["grants"][:place], took, *doc["grants"][place + 1 :]]
            return {**doc, "grants": grants}, took
    return doc, None


def give_back(doc: Doc | None, *, step: str, generation: int) -> tuple[Doc | None, None]:
    """Give the share of a step back that did not start."""
    if doc is None:
        return doc, None
    key = f"{step}#{generation}"
    grants = [
        {**one, "shares": {name: share for name, share in one["shares"].items() if name != key}}
        for one in doc["grants"]
    ]
    return {**doc, "grants": grants}, None


def _share(grant: Doc, taker: Taker, now: int) -> str | None:
    """Return what a call takes of a grant, as text; None when the grant does not cover it."""
    if now >= grant["until"] or len(grant["shares"]) >= grant["uses"]:
        return None
    if grant["rule"] != taker.rule or one_of(grant["by"], taker.requesters):
        return None
    if not grant["up_to"]:
        return ""
    try:
        amount = amount_of(taker.arguments[grant["arg"]])
        total = amount
        for share in grant["shares"].values():
            total = plus(total, number_of(share))
        return text_of(amount) if total <= number_of(grant["up_to"]) else None
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None
