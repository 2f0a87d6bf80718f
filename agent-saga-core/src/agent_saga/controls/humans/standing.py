"""Yes beforehand: how people give standing grants, and take back what nobody has used.

Rules of this part:

- A grant is taken back at once, for every process: a call that it covers and whose effect has not
  begun is refused, also if it had its share already. So is a yes to one call that has not begun.
- Anybody who is named may take a yes back, since that only ever refuses.
- The log says who granted what, and who took it back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from agent_saga.controls.humans import document, grants
from agent_saga.controls.humans.grants import MOST_USES, Grant, Offer
from agent_saga.controls.humans.kept import Kept, escaped, id_of, nobody, note_of
from agent_saga.controls.humans.timing import time_of
from agent_saga.controls.limits.moments import moment
from agent_saga.errors import Ambiguous, NotFound, StateError
from agent_saga.state.base import one

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from agent_saga.state.document import Doc

__all__ = ["Revoked", "Standing"]


class Revoked(Struct, frozen=True):
    """What was taken back.

    Attributes:
        id, tool: which grant or request, and of which tool.
        approver: who had said yes.
        calls: how many calls a standing grant had covered until then.
    """

    id: str
    tool: str
    approver: str
    calls: int = 0


class Standing(Kept):
    """Standing grants in a state store; arguments as for `Kept`."""

    def grants(self, damaged: Callable[[str], object] = nobody) -> list[Doc]:
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
        offer = Offer(tool, approver, seconds, uses, rule, arg, up_to, note_of(note))
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
        self._record(grant=asdict(grant))
        return grant.id

    def revoke(self, wanted: str, *, approver: str, note: str = "") -> Revoked:
        """Take a standing grant back, or the yes to one call that has not begun. Blocks.

        Args:
            wanted: the id of a grant or of a request, or the beginning of one.
            approver: who takes it back; anybody who is named may.
            note: a remark for the record.

        Raises:
            NotFound: there is no such grant or request.
            Ambiguous: there are several.
            ApprovalError: nobody is named, or the request has no yes that could be taken back:
                nobody has decided it, it was denied, or its call has begun.
            StateError: it could not be stored, and may still hold.

        Crash: what was stored holds, also if nobody was told. When this returns, no call begins by
        this yes any more; one whose effect has begun goes on. Fails closed.
        """
        wanted, by, remark = id_of(wanted), escaped(approver), note_of(note)
        tools = self._granted_ids(wanted)
        asked = [doc["id"] for _, doc in self.state.scan(document.key_of(wanted))] if wanted else []
        exact = [name for name in (*tools, *asked) if name == wanted]
        meant = exact or [*tools, *asked]
        if len(meant) > 1:
            raise Ambiguous(
                f"{len(meant)} grants and requests begin with {wanted!r}.", fix=self._lister()
            )
        if not meant:
            raise NotFound(f"No grant and no request begins with {wanted!r}.", fix=self._lister())
        if meant[0] in tools:
            return self._revoke_grant(meant[0], tools[meant[0]], by, remark)
        return self._revoke_answer(meant[0], by, remark)

    def _granted_ids(self, wanted: str) -> dict[str, str]:
        """Return the grants whose ids begin so, each with its document's key."""
        found: dict[str, str] = {}
        for key, doc in self.state.scan(grants.PREFIX) if wanted else ():
            try:
                ids = [one["id"] for one in grants.of(doc)]
            except StateError:
                continue  # its calls are refused, and `damaged` tells it
            found |= {name: key for name in ids if name.startswith(wanted)}
        return found

    def _revoke_grant(self, grant: str, key: str, by: str, note: str) -> Revoked:
        now = moment(self.clock)
        rule = one(key, lambda doc: grants.revoke(doc, grant, by=by, note=note, now=now))
        gone = self.state.transact([key], rule)
        if gone is None:
            raise NotFound(f"The grant {grant} is over.", fix=self._lister())
        facts = {name: gone[name] for name in ("tool", "rule", "until", "uses", "arg", "up_to")}
        given = {"granted_by": gone["by"], "calls": len(gone["shares"])}
        self._record(revoked={"grant": grant, **facts, **given}, by=by, note=note)
        return Revoked(grant, gone["tool"], gone["by"], len(gone["shares"]))

    def _revoke_answer(self, request: str, by: str, note: str) -> Revoked:
        key, now = document.key_of(request), moment(self.clock)
        rule = one(key, lambda doc: document.revoke(doc, by=by, note=note, now=time_of(doc, now)))
        before = self.state.transact([key], rule)
        facts = {name: before[name] for name in ("saga", "step", "gen", "tool", "rule")}
        given = {"granted_by": before["decision"]["by"]}
        self._record(revoked={"request": request, **facts, **given}, by=by, note=note)
        return Revoked(request, before["tool"], before["decision"]["by"])
