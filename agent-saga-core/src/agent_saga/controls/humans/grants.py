"""Standing grants: yes to calls of one tool, up to an amount, until a time, counted.

Rules of this part:

- A grant is for one tool and one rule, has an end, and covers at most so many calls. With an
  amount, it covers calls until the sum of one argument reaches it; a call whose argument is no
  finite amount of zero or more is not covered.
- A grant is over at the first of two moments: its end by the wall clock, and when its time has gone
  by on an axis of its own that no clock step moves. So a clock that is put back makes none longer.
- A call takes its share once, under the id of its request, which is bound to rule and arguments: a
  share for one question answers no other one, and none for other arguments. It is given back only
  by a step that did not start. So a crash leaves too little, never too much.
- A call looks at its grant again before its effect and before every further attempt. A grant that
  is over or was revoked lets none begin any more, also none that has its share.
- Whoever gave it may not be among those who ask, and has to be among the approvers where those are
  named.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from agent_saga.controls import given
from agent_saga.controls.amounts import add as plus
from agent_saga.controls.amounts import amount_of, number_of, text_of
from agent_saga.controls.humans.names import blank, one_of
from agent_saga.controls.limits.moments import Axis, Moment
from agent_saga.errors import ApprovalError, ConfigurationError, StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.state.document import Doc

__all__ = [
    "MOST_USES",
    "PREFIX",
    "Grant",
    "Offer",
    "Taker",
    "add",
    "forgettable",
    "give_back",
    "granted",
    "key_of",
    "of",
    "revoke",
    "take",
    "why_not",
]

PREFIX: Final = "grant/"
_MOST: Final = 100
"""How many grants of one tool hold at the same time."""

MOST_USES: Final = 1000
"""How many calls one grant covers at most."""


class Offer(Struct, frozen=True):
    """What a person wants to grant; see `Grant`.

    Attributes:
        tool, approver, seconds, uses, rule, arg, up_to, note: as for `ApprovalStore.grant`.
    """

    tool: str
    approver: str
    seconds: float
    uses: int = MOST_USES
    rule: str = "irreversible"
    arg: str = ""
    up_to: object = None
    note: str = ""


class Grant(Struct, frozen=True):
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


class Taker(Struct, frozen=True):
    """A call that wants to be covered.

    Attributes:
        request: the id of its request, under which its share is kept.
        rule: what asks for an approval.
        arguments: the call's arguments, by name.
        requesters: who asks.
        approvers: whose grants count; everybody's who does not ask, when empty.
    """

    request: str
    rule: str
    arguments: Mapping[str, Any]
    requesters: Sequence[str]
    approvers: Sequence[str] = ()


def granted(offer: Offer, *, identity: str, now: int) -> Grant:
    """Return the grant that an offer is from a moment on.

    Raises:
        ApprovalError: the approver is not named, or a bound cannot be used.
    """
    if blank(offer.approver):
        raise ApprovalError("Whoever grants has to be named.", fix="Give approver='…'.")
    counted = type(offer.uses) is int and 0 < offer.uses <= MOST_USES
    if not counted or not isinstance(offer.arg, str) or (offer.up_to is None) != (not offer.arg):
        raise ApprovalError(
            f"A grant has 1 to {MOST_USES} uses, and both `arg` and `up_to` or none of them."
        )
    try:
        until = now + int(given.seconds("The time of a grant", offer.seconds) * 1_000_000)
        tool = given.words("The tool of a grant", offer.tool)
        rule = given.words("The rule of a grant", offer.rule)
        bound = "" if offer.up_to is None else text_of(amount_of(offer.up_to))
    except ConfigurationError as error:
        raise ApprovalError(error.message) from None
    except (TypeError, ValueError) as error:
        raise ApprovalError(f"The bound of a grant is no amount: {error}.") from None
    by = offer.approver.encode("utf-8", "backslashreplace").decode()
    return Grant(identity, tool, rule, by, offer.note, until, offer.uses, offer.arg, bound)


def forgettable(doc: Doc, *, now: int) -> bool:
    """Say whether all grants of a tool are over."""
    return all(one["until"] <= now for one in (*of(doc), *doc.get("revoked", ())))


class _Kept(Struct):
    """What has to stand of a grant in its document."""

    id: str
    tool: str
    rule: str
    by: str
    note: str
    until: int
    uses: int
    arg: str
    up_to: str
    ends: float
    shares: dict[str, str]


class _Gone(Struct):
    """What is told of a grant that was taken back."""

    id: str
    by: str
    note: str
    until: int


class _Form(Struct):
    tool: str
    axis: tuple[float, int, float, str]
    grants: list[_Kept]
    revoked: list[_Gone] = []


def of(doc: Doc | None) -> list[Doc]:
    """Return the grants that a document holds.

    Raises:
        StateError: it cannot be understood.
    """
    if doc is None:
        return []
    try:
        convert(doc, _Form)
    except ValidationError as error:
        raise StateError(
            f"The document of a tool's standing grants is damaged: {error}.",
            fix="Calls of that tool are refused; look who can write the state store.",
        ) from error
    found: list[Doc] = doc["grants"]
    return found


def key_of(tool: str) -> str:
    """Return the key of the document of a tool's grants; names of tools may be long."""
    return PREFIX + sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _axis(doc: Doc | None, now: Moment) -> Axis:
    return Axis(0.0, *now) if doc is None else Axis(*doc["axis"]).advanced(now)


def _holds(one: Doc, axis: Axis, now: Moment) -> bool:
    return bool(now.wall < one["until"] and axis.now < one["ends"])


def add(doc: Doc | None, grant: Grant, *, now: Moment) -> tuple[Doc, None]:
    """Add a grant to those of its tool; grants that are over are taken out.

    Raises:
        ApprovalError: the tool has too many grants.
    """
    grants, axis = of(doc), _axis(doc, now)
    kept = [one for one in grants if _holds(one, axis, now)]
    if len(kept) >= _MOST:
        raise ApprovalError(f"{grant.tool} has {_MOST} grants already.", fix="Wait until one ends.")
    ends = axis.now + (grant.until - now.wall) / 1_000_000
    made = {**asdict(grant), "ends": ends, "shares": {}}
    gone = [] if doc is None else [old for old in _revoked(doc) if now.wall < old["until"]]
    made_of = {"tool": grant.tool, "axis": list(axis), "grants": [*kept, made]}
    return ({**made_of, "revoked": gone} if gone else made_of), None


def take(doc: Doc | None, taker: Taker, *, now: Moment) -> tuple[Doc | None, Doc | None]:
    """Take a call's share of the first grant that covers it; returns that grant, or None."""
    known = of(doc)
    axis = _axis(doc, now)
    usable = [one for one in known if _holds(one, axis, now) and _may_cover(one, taker)]
    for grant in usable:
        if taker.request in grant["shares"]:
            return doc, grant
    for grant in usable:
        share = _share(grant, taker)
        if doc is not None and share is not None:
            took = {**grant, "shares": {**grant["shares"], taker.request: share}}
            grants = [took if one is grant else one for one in doc["grants"]]
            return {**doc, "axis": list(axis), "grants": grants}, took
    return doc, None


def give_back(doc: Doc | None, request: str) -> tuple[Doc | None, None]:
    """Give the share of a request back whose step did not start."""
    if doc is None:
        return doc, None
    grants = [
        {**one, "shares": {name: share for name, share in one["shares"].items() if name != request}}
        for one in of(doc)
    ]
    return {**doc, "grants": grants}, None


def revoke(
    doc: Doc | None, grant: str, *, by: str, note: str, now: Moment
) -> tuple[Doc | None, Doc | None]:
    """Take a grant back; returns the grant as it was, or None when there is none of this id.

    Raises:
        ApprovalError: nobody is named.
    """
    if blank(by):
        raise ApprovalError("Whoever revokes has to be named.", fix="Give --approver WHO.")
    found = [one for one in of(doc) if one["id"] == grant]
    if doc is None or not found:
        return doc, None
    left = [one for one in doc["grants"] if one["id"] != grant]
    gone = {"id": grant, "by": by, "note": note, "until": found[0]["until"]}
    told = [old for old in _revoked(doc) if now.wall < old["until"]]
    return {**doc, "grants": left, "revoked": [*told, gone][-_MOST:]}, found[0]


def why_not(doc: Doc | None, *, grant: str, request: str, now: Moment) -> str:
    """Return why a call that has its share of a grant may not begin; empty if it may.

    Args:
        doc: the document of the tool's grants.
        grant: which one.
        request: the id of the call's request.
        now: the clocks.
    """
    for one in of(doc):
        if one["id"] == grant:
            if not _holds(one, _axis(doc, now), now):
                return f"the standing grant {grant} is over"
            has = request in one["shares"]
            return "" if has else f"its share of the standing grant {grant} was given back"
    for gone in () if doc is None else _revoked(doc):
        if gone["id"] == grant:
            note = f": {gone['note']}" if gone["note"] else ""
            return f"{gone['by']} has revoked the standing grant {grant}{note}"
    return f"the standing grant {grant} is gone"


def _revoked(doc: Doc) -> list[Doc]:
    """Return the grants of a document that were taken back, as far as they are remembered."""
    found: list[Doc] = doc.get("revoked", [])
    return found


def _may_cover(grant: Doc, taker: Taker) -> bool:
    """Say whether a grant is for what is asked, and by somebody whose yes counts."""
    if grant["rule"] != taker.rule or one_of(grant["by"], taker.requesters):
        return False
    return not taker.approvers or one_of(grant["by"], taker.approvers)


def _share(grant: Doc, taker: Taker) -> str | None:
    """Return what a call takes of a grant, as text; None when too little of it is left."""
    if len(grant["shares"]) >= grant["uses"]:
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
