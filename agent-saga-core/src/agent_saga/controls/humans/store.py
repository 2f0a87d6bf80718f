"""Where requests and standing grants are kept, and how people decide them from anywhere.

Rules of this part:

- A decision is stored durably before anybody hears of it, then rung, then recorded in the log.
- What is decided here is decided by the rules of `document`: atomically, once, by somebody who may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.controls import given
from agent_saga.controls.humans import document
from agent_saga.controls.humans.document import State
from agent_saga.controls.humans.kept import escaped, id_of, nobody, note_of
from agent_saga.controls.humans.keys import challenge_of, key_from
from agent_saga.controls.humans.names import person
from agent_saga.controls.humans.standing import Standing
from agent_saga.controls.humans.timing import time_of
from agent_saga.controls.limits.moments import moment
from agent_saga.errors import Ambiguous, ApprovalError, NotFound, StateError
from agent_saga.state.base import one

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_saga.controls.control import Surroundings
    from agent_saga.state.document import Doc

__all__ = ["ApprovalStore"]


class ApprovalStore(Standing):
    """Requests for approval and standing grants in a state store.

    Args:
        state: the state store.
        wal: the log in which decisions are recorded, if any.
        clock: where time is read; the machine's clocks when not given.
    """

    def within(self, surroundings: Surroundings) -> ApprovalStore:
        """Return the store to use with a log: itself, unless it is that of any log in use."""
        return self

    # --- looking ---------------------------------------------------------------------------------

    def pending(self) -> list[Doc]:
        """Return the requests that can be decided now, oldest first; blocks.

        Raises:
            StateError: the store cannot be read.
        """
        now = moment(self.clock)
        open_ones = [
            doc
            for doc in self._whole()
            if document.expire(doc, now=time_of(doc, now))[1] is State.PENDING
        ]
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

    def _whole(self, damaged: Callable[[str], object] = nobody) -> list[Doc]:
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

    def find(self, wanted: str) -> Doc:
        """Return the request of an id, or of the beginning of one; blocks.

        Raises:
            NotFound: there is none.
            Ambiguous: there are several.
            StateError: it cannot be understood, or the store cannot be read.
        """
        wanted = id_of(wanted)
        exact = self.state.get(document.key_of(wanted)) if wanted else None
        if exact is not None:
            document.state_of(exact)
            return exact
        found = [doc for _, doc in self.state.scan(document.key_of(wanted))] if wanted else []
        if len(found) == 1 and document.state_of(found[0]):
            return found[0]
        if found:
            raise Ambiguous(f"{len(found)} requests begin with {wanted!r}.", fix=self._lister())
        raise NotFound(f"No request begins with {wanted!r}.", fix=self._lister())

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
            ApprovalError: nothing of this id was asked, its time is over, this person may not, or
                nothing waits for the answer since the saga that asked has ended.
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
                fix="Sign its challenge with the registered key: "
                f"agent-saga approvals challenge {doc['id']}",
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
        key, now, remark = document.key_of(id_of(request)), moment(self.clock), note_of(note)
        if approved:
            self._check_asker(key)
        by = escaped(by)
        given.flag("break_glass=", break_glass)

        def rule(doc: Doc | None) -> tuple[Doc, Doc]:
            made, _ = document.decide(
                doc,
                approved=approved,
                by=by,
                note=remark,
                now=time_of(doc, now),
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

    def why_gone(self, request: Doc) -> str:
        """Return why no yes to a request counts any more; empty as far as that is known. Blocks."""
        return ""

    def _check_asker(self, key: str) -> None:
        doc = self.state.get(key)
        now = time_of(doc, moment(self.clock))
        if doc is None or document.expire(doc, now=now)[1] is not State.PENDING:
            return  # the rules of `document` say what is wrong
        why = self.why_gone(doc)
        if why:
            raise ApprovalError(
                f"This request cannot be approved: {why}.",
                fix="Deny it, or leave it until its time is over.",
            )

    def review(self, request: str, *, by: str, note: str = "") -> None:
        """Note that somebody has looked at a decision that broke glass. Blocks.

        Raises:
            ApprovalError: there is nothing to review, or this person took part in it.
        """
        key, now = document.key_of(id_of(request)), self.clock.now_us()
        who, remark = escaped(by), note_of(note)
        self.state.transact(
            [key], one(key, lambda doc: document.review(doc, by=who, note=remark, now=now))
        )
        self._record(id=request, reviewed_by=who, note=remark)
