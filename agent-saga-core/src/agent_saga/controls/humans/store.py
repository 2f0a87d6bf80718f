"""Where requests and standing grants are kept, and how people decide them from anywhere.

Rules of this part:

- A decision is stored durably before anybody hears of it, then rung, then recorded in the log.
- What is decided here is decided by the rules of `document`: atomically, once, by somebody who may.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agent_saga.controls import given
from agent_saga.controls.humans import document, grants
from agent_saga.controls.humans.document import State
from agent_saga.controls.humans.grants import MOST_USES, Grant, Offer
from agent_saga.controls.humans.keys import challenge_of, key_from
from agent_saga.controls.humans.names import person
from agent_saga.controls.humans.waiting import Listener, listener_of
from agent_saga.controls.limits.moments import moment
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.commands import told_command
from agent_saga.domain.records import Ev
from agent_saga.errors import (
    AgentSagaError,
    Ambiguous,
    ApprovalError,
    ConfigurationError,
    NotFound,
    StateError,
)
from agent_saga.state.base import Change, one
from agent_saga.wal.encoding import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from decimal import Decimal

    from agent_saga.controls.control import Surroundings
    from agent_saga.domain.clock import Clock
    from agent_saga.state.base import Docs, Rule, StateStore
    from agent_saga.state.document import Doc
    from agent_saga.wal.base import BaseWAL

__all__ = ["ApprovalStore"]

log = logging.getLogger("agent_saga.controls")
_LONGEST_NOTE: Final = 2000
_AT_ONCE: Final = 50


def _nobody(_: str) -> None:
    """Tell nobody."""


class ApprovalStore:
    """Requests for approval in a state store.

    Args:
        state: the state store.
        wal: the log in which decisions are recorded, if any.
        clock: where time is read; the machine's clocks when not given.

    Attributes:
        forget_again: when old requests are looked for again, on the monotonic clock.
    """

    forget_again: float = 0.0

    def __init__(
        self, state: StateStore, wal: BaseWAL | None = None, *, clock: Clock | None = None
    ) -> None:
        self._state = state
        self._wal = wal
        self.clock = SYSTEM_CLOCK if clock is None else clock

    @property
    def state(self) -> StateStore:
        """The state store."""
        return self._state

    @property
    def wal(self) -> BaseWAL | None:
        """The log in which decisions are recorded."""
        return self._wal

    @functools.cached_property
    def listener(self) -> Listener:
        """What wakes who waits for a decision."""
        return listener_of(self.state)

    def within(self, surroundings: Surroundings) -> ApprovalStore:
        """Return the store to use with a log: itself, unless it is that of any log in use."""
        return self

    # --- looking ---------------------------------------------------------------------------------

    def pending(self) -> list[Doc]:
        """Return the requests that can be decided now, oldest first; blocks.

        Raises:
            StateError: the store cannot be read.
        """
        now = self.clock.now_us()
        open_ones = [d for d in self._whole() if document.expire(d, now=now)[1] is State.PENDING]
        return sorted(open_ones, key=lambda doc: doc["asked"])

    def damaged(self) -> list[str]:
        """Return the keys of documents that cannot be understood; blocks."""
        told: list[str] = []
        self._whole(told.append)
        self.grants(told.append)
        return told

    def reviews(self) -> list[Doc]:
        """Return the decisions that broke glass and that nobody has reviewed; blocks."""
        return [doc for doc in self._whole() if doc["review"] == "OPEN"]

    def _whole(self, damaged: Callable[[str], object] = _nobody) -> list[Doc]:
        """Return the documents of requests that can be understood; tell the keys of the others."""
        found = []
        for key, doc in self.state.scan(document.PREFIX):
            try:
                document.state_of(doc)
            except StateError:
                damaged(key)
            else:
                found.append(doc)
        return found

    def grants(self, damaged: Callable[[str], object] = _nobody) -> list[Doc]:
        """Return the standing grants that hold now; blocks.

        Args:
            damaged: told the keys of documents that cannot be understood.
        """
        now, found = self.clock.now_us(), []
        for key, doc in self.state.scan(grants.PREFIX):
            try:
                found += [one for one in grants.of(doc) if now < one["until"]]
            except StateError:
                damaged(key)
        return found

    def find(self, wanted: str) -> Doc:
        """Return the request of an id, or of the beginning of one; blocks.

        Raises:
            NotFound: there is none.
            Ambiguous: there are several.
            StateError: it cannot be understood, or the store cannot be read.
        """
        wanted = _id(wanted)
        exact = self.state.get(document.key_of(wanted)) if wanted else None
        if exact is not None:
            document.state_of(exact)
            return exact
        found = [doc for _, doc in self.state.scan(document.key_of(wanted))] if wanted else []
        if len(found) == 1 and document.state_of(found[0]):
            return found[0]
        address = self.wal.address if self.wal is not None else ""
        fix = told_command("approvals list", address if address.startswith("file:") else "")
        if found:
            raise Ambiguous(f"{len(found)} requests begin with {wanted!r}.", fix=fix)
        raise NotFound(f"No request begins with {wanted!r}.", fix=fix)

    # --- deciding --------------------------------------------------------------------------------

    def approve(
        self, request: str, *, approver: str, note: str = "", break_glass: bool = False
    ) -> Doc:
        """Approve a request; the call that waits for it, in whichever process, goes on. Blocks.

        Args:
            request: its id.
            approver: who says so; none of those who ask.
            note: a remark for the record.
            break_glass: an emergency: also somebody who is not among the approvers may; it is
                marked, and waits for a review.

        Raises:
            AlreadyDecided: somebody was faster.
            ApprovalError: nothing of this id was asked, its time is over, or this person may not.
            StateError: it could not be stored.

        Crash: an approval that was stored counts, also when nobody was told that it does.
        """
        return self._decide(request, True, approver, note, break_glass=break_glass)

    def deny(self, request: str, *, approver: str, note: str = "") -> Doc:
        """Deny a request; raises as `approve` does. Blocks."""
        return self._decide(request, False, approver, note)

    def challenge(self, request: str) -> bytes:
        """Return the bytes that have to be signed to approve a request; blocks.

        Raises:
            ApprovalError: nothing of this id was asked.
        """
        doc = self.find(request)
        return challenge_of(doc, doc["deadline"])

    def sign(self, request: str, *, approver: str, signature: str, note: str = "") -> Doc:
        """Submit a signature; the request is granted when enough different keys have signed.

        Args:
            request: its id.
            approver: whose key signed.
            signature: of an Ed25519 key in base64 or hexadecimal; of a WebAuthn key the JSON of
                the assertion.
            note: a remark for the record.

        Raises:
            ApprovalError: the signature is not good, or this person has no key for this request.
            AlreadyDecided: it is decided already.
            ConfigurationError: the extra that the key needs is not installed.
        """
        doc = self.find(request)
        names = [name for name in doc["keys"] if person(name) == person(approver)]
        if not names:
            raise ApprovalError(
                f"{approver} has no key for this request.",
                fix=f"Who can sign it: {', '.join(doc['keys']) or 'nobody, it wants a name'}.",
            )
        key = key_from(doc["keys"][names[0]])
        if not key.verifies(challenge_of(doc, doc["deadline"]), signature):
            raise ApprovalError(
                f"The signature of {approver} is not good for this request.",
                fix="Sign what agent-saga approvals challenge ID gives, with the registered key.",
            )
        return self._decide(doc["id"], True, names[0], note, signed={names[0]: signature})

    def _decide(
        self,
        request: str,
        approved: bool,
        by: str,
        note: str,
        *,
        break_glass: bool = False,
        signed: Mapping[str, str] | None = None,
    ) -> Doc:
        key, now, remark = document.key_of(_id(request)), self.clock.now_us(), _note(note)
        by = _escaped(by)
        given.flag("break_glass=", break_glass)

        def rule(doc: Doc | None) -> tuple[Doc, Doc]:
            made, _ = document.decide(
                doc,
                approved=approved,
                by=by,
                note=remark,
                now=now,
                break_glass=break_glass,
                signed=signed,
            )
            return made, made

        made = self.state.transact([key], one(key, rule))
        self.listener.ring(request)
        if made["state"] != State.PENDING.value:
            facts = {name: made[name] for name in ("id", "saga", "step", "gen", "tool", "rule")}
            self._record(**facts, approved=approved, **made["decision"])
        return made

    def review(self, request: str, *, by: str, note: str = "") -> None:
        """Note that somebody has looked at a decision that broke glass. Blocks.

        Raises:
            ApprovalError: there is nothing to review, or this person took part in it.
        """
        key, now = document.key_of(_id(request)), self.clock.now_us()
        who, remark = _escaped(by), _note(note)
        self.state.transact(
            [key], one(key, lambda doc: document.review(doc, by=who, note=remark, now=now))
        )
        self._record(id=request, reviewed_by=who, note=remark)

    def grant(
        self,
        tool: str,
        *,
        approver: str,
        seconds: float,
        uses: int = MOST_USES,
        rule: str = "irreversible",
        arg: str = "",
        up_to: Decimal | float | str | None = None,
        note: str = "",
    ) -> str:
        """Approve calls of a tool beforehand: counted, for a time, and up to a sum if given.

        Args:
            tool: the tool's name.
            approver: who says so; a call whose requester they are is not covered.
            seconds: how long it holds.
            uses: how many calls it covers.
            rule: which rule's question it answers.
            arg: the argument whose sum is bounded.
            up_to: the bound of that sum, exactly.
            note: a remark for the record.

        Returns:
            The id of the grant.

        Raises:
            ApprovalError: the approver is not named, or a bound cannot be used.
            StateError: it could not be stored.
        """
        offer = Offer(tool, approver, seconds, uses, rule, arg, up_to, _note(note))
        return self.keep(self.offered(offer))

    def offered(self, offer: Offer) -> Grant:
        """Return the grant that an offer is from now on; nothing is stored.

        Raises:
            ApprovalError: the approver is not named, or a bound cannot be used.
        """
        return grants.granted(offer, identity=os.urandom(8).hex(), now=self.clock.now_us())

    def keep(self, grant: Grant) -> str:
        """Store a grant, and return its id; raises as `grant` does. Blocks."""
        key, now = grants.key_of(grant.tool), moment(self.clock)
        self.state.transact([key], one(key, lambda doc: grants.add(doc, grant, now=now)))
        self._record(grant=grant._asdict())
        return grant.id

    def forget_old(self) -> int:
        """Forget requests and grants that were over long ago; return how many documents. Blocks.

        Raises:
            StateError: the store cannot be read or written.
        """
        now, forgotten = self.clock.now_us(), 0
        for prefix, old in _OLD:
            keys = [key for key, doc in self.state.scan(prefix) if _is_old(old, doc, now)]
            for at in range(0, len(keys), _AT_ONCE):
                some = keys[at : at + _AT_ONCE]
                forgotten += self.state.transact(some, _forgetting(old, now), durable=False)
        return forgotten

    def _record(self, **facts: Any) -> None:
        """Record what holds already; a log that fails takes nothing of it back."""
        wal = self.wal
        if wal is None:
            return
        try:
            wal.append(Ev.APPROVAL_DECIDED, payload=masked(facts)[0])
            wal.drain()
            wal.start_sync()
        except AgentSagaError:
            log.exception("a decision holds, and could not be recorded")


_Old: TypeAlias = "Callable[..., bool]"
_OLD: Final[tuple[tuple[str, _Old], ...]] = (
    (document.PREFIX, document.forgettable),
    (grants.PREFIX, grants.forgettable),
)


def _is_old(old: _Old, doc: Doc, now: int) -> bool:
    """Say whether a document can be forgotten; one that cannot be understood is a person's case."""
    try:
        return old(doc, now=now)
    except StateError:
        return False


def _forgetting(old: _Old, now: int) -> Rule[int]:
    def rule(docs: Docs) -> Change[int]:
        gone = {
            key: None for key, doc in docs.items() if doc is not None and _is_old(old, doc, now)
        }
        return Change(len(gone), gone)

    return rule


def _id(request: object) -> str:
    """Return the id of a request.

    Raises:
        ApprovalError: it is no text of the length that ids have.
    """
    if not isinstance(request, str) or len(request) > 200:
        raise ApprovalError(
            f"{given.shown(request)} is no request's id.",
            fix="agent-saga approvals list shows their ids.",
        )
    return _escaped(request)


def _escaped(text: object) -> str:
    """Return a text that a store can carry; what is none names nobody."""
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else ""


def _note(note: object) -> str:
    if not isinstance(note, str):
        raise ConfigurationError(f"note= is a text, not {type(note).__name__}.")
    return _escaped(note)[:_LONGEST_NOTE]
