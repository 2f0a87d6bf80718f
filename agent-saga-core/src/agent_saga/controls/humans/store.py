"""Where requests and standing grants are kept, and how people decide them from anywhere.

Rules of this part:

- A decision is stored durably before anybody hears of it, then rung, then recorded in the log.
- What is decided here is decided by the rules of `document`: atomically, once, by somebody who may.
"""

from __future__ import annotations

import functools
import logging
import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from agent_saga.controls.amounts import amount_of, text_of
from agent_saga.controls.humans import document, grants
from agent_saga.controls.humans.document import State
from agent_saga.controls.humans.keys import challenge_of, key_from
from agent_saga.controls.humans.names import blank, person
from agent_saga.controls.humans.waiting import Listener, listener_of
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.records import Ev
from agent_saga.errors import (
    AgentSagaError,
    Ambiguous,
    ApprovalError,
    ConfigurationError,
    NotFound,
)
from agent_saga.state.base import one
from agent_saga.wal.encoding import masked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_saga.controls.control import Surroundings
    from agent_saga.domain.clock import Clock
    from agent_saga.state.base import StateStore
    from agent_saga.state.document import Doc
    from agent_saga.wal.base import BaseWAL

__all__ = ["ApprovalStore"]

log = logging.getLogger("agent_saga.controls")
_LONGEST_NOTE: Final = 2000
_MOST_USES: Final = 1000
_MICRO: Final = 1_000_000
_YEAR: Final = 366 * 86_400


class ApprovalStore:
    """Requests for approval in a state store.

    Args:
        state: the state store.
        wal: the log in which decisions are recorded, if any.
        clock: where time is read; the machine's clocks when not given.
    """

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
        found = [doc for _, doc in self.state.scan(document.PREFIX)]
        open_ones = [d for d in found if document.expire(d, now=now)[1] is State.PENDING]
        return sorted(open_ones, key=lambda doc: doc["asked"])

    def reviews(self) -> list[Doc]:
        """Return the decisions that broke glass and that nobody has reviewed; blocks."""
        return [doc for _, doc in self.state.scan(document.PREFIX) if doc["review"] == "OPEN"]

    def grants(self) -> list[Doc]:
        """Return the standing grants that hold now; blocks."""
        now = self.clock.now_us()
        found = [doc for _, doc in self.state.scan(grants.PREFIX)]
        return [one for doc in found for one in doc["grants"] if now < one["until"]]

    def find(self, wanted: str) -> Doc:
        """Return the request of an id, or of the beginning of one; blocks.

        Raises:
            NotFound: there is none.
            Ambiguous: there are several.
        """
        exact = self.state.get(document.key_of(wanted)) if wanted else None
        if exact is not None:
            return exact
        found = [doc for _, doc in self.state.scan(document.key_of(wanted))] if wanted else []
        if len(found) == 1:
            return found[0]
        fix = "agent-saga approvals list shows their ids."
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
        key, now, remark = document.key_of(request), self.clock.now_us(), _note(note)

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
        key, now = document.key_of(request), self.clock.now_us()
        self.state.transact(
            [key], one(key, lambda doc: document.review(doc, by=by, note=_note(note), now=now))
        )
        self._record(id=request, reviewed_by=by, note=note)

    def grant(
        self,
        tool: str,
        *,
        approver: str,
        seconds: float,
        uses: int = _MOST_USES,
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
        if blank(approver):
            raise ApprovalError("Whoever grants has to be named.", fix="Give approver='…'.")
        counted = type(uses) is int and 0 < uses <= _MOST_USES
        if not counted or not 0 < seconds <= _YEAR or (up_to is None) != (not arg):
            raise ApprovalError(
                "A grant has 1 to 1000 uses, a time of up to a year, and both `arg` and `up_to` "
                "or none of them."
            )
        bound = "" if up_to is None else _amount(up_to)
        now = self.clock.now_us()
        until = now + int(seconds * _MICRO)
        made = grants.Grant(
            os.urandom(8).hex(), tool, rule, approver, _note(note), until, uses, arg, bound
        )
        key = grants.key_of(tool)
        self.state.transact([key], one(key, lambda doc: grants.add(doc, made, now=now)))
        self._record(grant=made._asdict())
        return made.id

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


def _amount(value: object) -> str:
    try:
        return text_of(amount_of(value))
    except (TypeError, ValueError) as error:
        raise ApprovalError(f"The bound of a grant is no amount: {error}.") from error


def _note(note: object) -> str:
    if not isinstance(note, str):
        raise ConfigurationError(f"note= is a text, not {type(note).__name__}.")
    return note.encode("utf-8", "backslashreplace").decode()[:_LONGEST_NOTE]
