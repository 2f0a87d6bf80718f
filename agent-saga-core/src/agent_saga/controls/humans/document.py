"""The rules of one request, as pure functions over its document.

Rules of this part:

- `PENDING -> GRANTED | DENIED | EXPIRED`, `GRANTED -> USED | EXPIRED`; the first decision wins and
  the loser is told. A request that nobody answered may be put again by the same step; a denied one
  stays denied.
- The id is a digest of saga, step, generation, tool, rule and arguments. A document of that id
  which says anything else is refused.
- Who decides is named, is none of those who ask, is among the approvers where those are named, and
  decides before the deadline. Breaking glass sets only the list of approvers aside; it is marked,
  and stays in the queue of reviews until somebody else has looked at it.
- A request that wants signatures is granted by signatures only, each of another key.
- A grant is used by the step that it is for, before it lapses, and once: the same step and
  generation may say so again, as a resumed process does. Anybody who is named may take it back,
  which is a no to whatever has not begun.
- A request that nobody can decide or use any more is forgotten `KEPT` days later, unless it waits
  for a review; the log keeps what was asked and decided. The same step would ask again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from agent_saga.controls.humans.form import State, state_of
from agent_saga.controls.humans.names import blank, one_of, person
from agent_saga.errors import AlreadyDecided, ApprovalError, StateError

if TYPE_CHECKING:
    from agent_saga.state.document import Doc

__all__ = [
    "PREFIX",
    "State",
    "consume",
    "decide",
    "expire",
    "forgettable",
    "key_of",
    "notified",
    "put",
    "review",
    "revoke",
    "state_of",
    "why_not",
]

PREFIX: Final = "approval/"
KEPT: Final = 30 * 86_400 * 1_000_000
"""Microseconds for which a request is kept after the last thing that could happen to it."""

_BOUND: Final = ("id", "saga", "step", "gen", "tool", "rule")


class Asked(Struct, frozen=True):
    """What a step asks.

    Attributes:
        about: what the id is a digest of, and what people are shown: plain data.
        deadline: microseconds since the epoch, after which nobody can decide.
        valid: microseconds for which a grant can be used.
        approvers: who may decide; everybody who does not ask, when empty.
        signatures: how many keys have to sign; 0 for an answer by name.
        keys: whose signatures count, each person's public key as plain data.
        clocks: what the clocks said when it was put; see `timing`.
    """

    about: Mapping[str, Any]
    deadline: int
    valid: int
    approvers: Sequence[str] = ()
    signatures: int = 0
    keys: Mapping[str, Any] = MappingProxyType({})
    clocks: tuple[int, float, str] | None = None


def key_of(request: str) -> str:
    """Return the key of a request's document."""
    return PREFIX + request


def put(doc: Doc | None, asked: Asked, *, now: int) -> tuple[Doc, State]:
    """Put a request, or find the one of the same step again.

    Raises:
        StateError: the document of this id is about something else.
    """
    found = _found_again(doc, asked)
    if found is None:
        return _new(asked, now), State.PENDING
    return expire(found, now=now)


def _found_again(doc: Doc | None, asked: Asked) -> Doc | None:
    """Return the request of the same step that was put before, unless nobody answered it."""
    if doc is None or state_of(doc) is State.EXPIRED:
        return None
    if any(doc.get(name) != asked.about[name] for name in _BOUND):
        raise StateError(
            f"The request {asked.about['id']} in the store is about something else.",
            fix="Look who can write the state store.",
        )
    return doc


def _new(asked: Asked, now: int) -> Doc:
    return {
        **asked.about,
        "state": State.PENDING.value,
        "asked": now,
        "deadline": asked.deadline,
        "valid": asked.valid,
        "approvers": list(asked.approvers),
        "signatures": asked.signatures,
        "keys": dict(asked.keys),
        "signed": {},
        "level": -1,
        "decision": None,
        "until": None,
        "used": None,
        "review": None,
        "clocks": None if asked.clocks is None else list(asked.clocks),
    }


def expire(doc: Doc, *, now: int, given_up: bool = False) -> tuple[Doc, State]:
    """Let a request expire if its time is over; returns where it stands.

    Args:
        doc: the document.
        now: the wall clock, in microseconds.
        given_up: whoever asked has waited long enough by its own clock.
    """
    state = state_of(doc)
    over = given_up or now >= doc["deadline"]
    lapsed = state is State.GRANTED and now >= doc["until"]
    if (state is State.PENDING and over) or lapsed:
        return {**doc, "state": State.EXPIRED.value}, State.EXPIRED
    return doc, state


def forgettable(doc: Doc, *, now: int) -> bool:
    """Say whether a request has been over for so long that nobody comes back to it.

    Raises:
        StateError: the document cannot be understood.
    """
    _, state = expire(doc, now=now)
    if state in (State.PENDING, State.GRANTED) or doc["review"] == "OPEN":
        return False
    moments = (doc["deadline"], doc["until"], doc["used"], (doc["decision"] or {}).get("at"))
    return max(moment or 0 for moment in moments) + KEPT <= now


def notified(doc: Doc, *, level: int) -> tuple[Doc, State]:
    """Note that the people of a level were told."""
    return {**doc, "level": max(level, doc["level"])}, state_of(doc)


def decide(
    doc: Doc | None,
    *,
    approved: bool,
    by: str,
    note: str,
    now: int,
    break_glass: bool = False,
    signed: Mapping[str, str] | None = None,
) -> tuple[Doc, State]:
    """Decide a request; returns where it stands.

    Args:
        doc: the document.
        approved: yes or no.
        by: who decides.
        note: a remark for the record.
        now: the wall clock, in microseconds.
        break_glass: an emergency: the list of approvers is set aside, and somebody reviews it.
        signed: signatures that were checked, by the name of their key.

    Raises:
        ApprovalError: nothing of this id was asked, its time is over, or this person cannot decide.
        AlreadyDecided: somebody was faster.
    """
    if doc is None:
        raise ApprovalError(
            "Nothing of this id was asked.", fix="What was: agent-saga approvals list"
        )
    _check_open(doc, now)
    _check_person(doc, by, break_glass=break_glass)
    if approved and doc["signatures"]:
        return _signed(doc, note, signed or {}, now)
    return _decided(doc, approved=approved, by=by, note=note, now=now, break_glass=break_glass)


def _check_open(doc: Doc, now: int) -> None:
    state = state_of(doc)
    if state in (State.GRANTED, State.DENIED, State.USED):
        decision = doc["decision"] or {}
        word = "denied" if state is State.DENIED else "approved"
        raise AlreadyDecided(
            f"{decision.get('by') or 'agent-saga'} has {word} this request already.",
            fix="Nothing is left to decide; what is: agent-saga approvals list",
        )
    if expire(doc, now=now)[1] is State.EXPIRED:
        raise ApprovalError(
            "The time to answer this request is over; it counts as denied.",
            fix="The agent asks again when it tries again.",
        )


def _check_person(doc: Doc, by: str, *, break_glass: bool) -> None:
    if blank(by):
        raise ApprovalError("Whoever decides has to be named.", fix="Give --approver WHO.")
    if one_of(by, doc["requesters"]):
        raise ApprovalError(
            f"{by} is among those who ask, and nobody decides their own request.",
            fix="Somebody else has to decide it.",
        )
    if doc["approvers"] and not break_glass and not one_of(by, doc["approvers"]):
        raise ApprovalError(
            f"{by} is not among those who may decide this request.",
            fix=f"It can be decided by {', '.join(doc['approvers'])}; in an emergency by anybody "
            "with --break-glass, which somebody reviews.",
        )


def _signed(doc: Doc, note: str, signed: Mapping[str, str], now: int) -> tuple[Doc, State]:
    """Add signatures; the request is granted when enough different keys have signed."""
    together = {**doc["signed"], **signed}
    if not signed:
        raise ApprovalError(
            "This request is approved by signatures only.",
            fix="Sign its challenge with a registered key.",
        )
    if len(together) < doc["signatures"]:
        return {**doc, "signed": together}, State.PENDING
    names = ", ".join(sorted(together))
    return _decided({**doc, "signed": together}, approved=True, by=names, note=note, now=now)


def _decided(
    doc: Doc, *, approved: bool, by: str, note: str, now: int, break_glass: bool = False
) -> tuple[Doc, State]:
    state = State.GRANTED if approved else State.DENIED
    decision = {"by": by, "note": note, "at": now, "break_glass": break_glass}
    return {
        **doc,
        "state": state.value,
        "decision": decision,
        "until": now + doc["valid"],
        "review": "OPEN" if break_glass and approved else None,
    }, state


def refuse(doc: Doc, *, note: str, now: int) -> tuple[Doc, State]:
    """Deny a pending request for a reason of our own; a decision that came first stands."""
    if state_of(doc) is not State.PENDING:
        return doc, state_of(doc)
    return _decided(doc, approved=False, by="", note=note, now=now)


def revoke(doc: Doc | None, *, by: str, note: str, now: int) -> tuple[Doc, Doc]:
    """Take back a yes; returns the document as it was. A call that has begun goes on.

    Raises:
        ApprovalError: nobody is named, or there is no yes that could be taken back.
    """
    if doc is None:
        raise ApprovalError("Nothing of this id was asked.")
    if blank(by):
        raise ApprovalError("Whoever revokes has to be named.", fix="Give --approver WHO.")
    _, state = expire(doc, now=now)
    if state not in (State.GRANTED, State.USED):
        deny = f"agent-saga approvals deny {doc['id']} --approver NAME"
        fix = f"Deny it: {deny}" if state is State.PENDING else ""
        stands = "decided yet" if state is State.PENDING else f"left: it is {state.value.lower()}"
        raise ApprovalError(f"No yes to this request can be taken back: none is {stands}.", fix=fix)
    made, _ = _decided(doc, approved=False, by=by, note=note or "taken back", now=now)
    return {**made, "review": doc["review"]}, doc


def why_not(doc: Doc | None) -> str:
    """Return why the yes to a call counts no more; empty if it does."""
    if doc is None:
        return "nothing of this id was asked"
    if state_of(doc) in (State.GRANTED, State.USED):
        return ""
    decision = doc["decision"] or {}
    note = f": {decision['note']}" if decision.get("note") else ""
    return f"{decision.get('by') or 'nobody'} has taken it back{note}"


def consume(doc: Doc | None, *, step: str, generation: int, now: int) -> tuple[Doc | None, str]:
    """Use a grant; returns why it cannot be used, or an empty string.

    Args:
        doc: the document.
        step: who uses it.
        generation: of which generation it is.
        now: the wall clock, in microseconds.
    """
    if doc is None:
        return doc, "nothing of this id was asked"
    if (doc["step"], doc["gen"]) != (step, generation):
        return doc, "it was given for another step"
    state = state_of(doc)
    if state is State.USED:
        return doc, ""
    if state is not State.GRANTED:
        return doc, f"the request is {state.value.lower()}"
    if now >= doc["until"]:
        return doc, "it has lapsed"
    return {**doc, "state": State.USED.value, "used": now}, ""


def review(doc: Doc | None, *, by: str, note: str, now: int) -> tuple[Doc, None]:
    """Note that somebody has looked at a decision that broke glass.

    Raises:
        ApprovalError: there is nothing to review, or this person cannot review it.
    """
    if doc is None or not (state_of(doc) and doc["review"] == "OPEN"):
        raise ApprovalError("Nothing of this id waits for a review.")
    if blank(by):
        raise ApprovalError("Whoever reviews has to be named.", fix="Give --approver WHO.")
    if person(by) == person(doc["decision"]["by"]) or one_of(by, doc["requesters"]):
        raise ApprovalError(
            f"{by} took part in it.", fix="Somebody who did not take part has to review it."
        )
    return {**doc, "review": {"by": by, "note": note, "at": now}}, None
