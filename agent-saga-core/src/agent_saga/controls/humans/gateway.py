"""`ApprovalGateway`: asks people, and waits for whoever answers from wherever.

Rules of this part:

- A request is durable before anybody is told of it. A process that comes back to the same step
  finds its request again, asks nobody anew, and takes the answer that was given meanwhile.
- People are told level by level. A notifier that fails on the first level denies the call, since
  nobody may know of it; a later level that fails is logged, and the first may still answer. One
  that does not come back has failed after `TELLING` seconds, and keeps nothing waiting after that.
- The wait blocks no event loop, holds no thread of the pool, and asks the store only when its bell
  rang, and now and then. What cannot be stored or read until the end of the time is a no.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent_saga.controls.approvals import Approval, ApprovalRequest
from agent_saga.controls.control import Surroundings, Use, looking, transaction
from agent_saga.controls.humans import document, grants
from agent_saga.controls.humans.document import Asked, State
from agent_saga.controls.humans.notice import Notice, Notifier
from agent_saga.controls.humans.policy import ApprovalPolicy
from agent_saga.controls.humans.store import ApprovalStore
from agent_saga.controls.humans.telling import TELLING, told_in_time
from agent_saga.controls.humans.timing import time_of
from agent_saga.controls.humans.waiting import Ear, pause
from agent_saga.controls.limits.moments import moment
from agent_saga.domain.commands import quoted
from agent_saga.domain.durations import ANSWER_WITHIN
from agent_saga.errors import ConfigurationError, StateError, one_line
from agent_saga.observe.logger import logger
from agent_saga.plugins.process import process_plugins
from agent_saga.state.base import one

if TYPE_CHECKING:
    from agent_saga.state.document import Doc
    from agent_saga.wal.base import BaseWAL

__all__ = ["ApprovalGateway"]

log = logger("agent_saga.controls")

SLACK: Final = 30.0
"""Seconds by which the engine's own bound is longer than the policy's: the store is asked last."""

_FORGETTING: Final = 86_400.0
"""Seconds after which a process looks again whether old requests can be forgotten."""

_MICRO: Final = 1_000_000
_LONGEST_SHOWN: Final = 65_536


class ApprovalGateway:
    """Asks people through a notifier, and waits until one of them answers, or the time is over.

    Args:
        store: where requests are kept; the state store of the log in use when not given.
        notifier: tells people, or the name under which a plugin registered one; without one they
            look at `agent-saga approvals list` themselves.
        wal: the log in which decisions are recorded; that of the boundary when not given.
        policy: how long people have, and who is told when.
        requester: a further name of who asks, beside the kit's and the boundary's label
            `requester`; none of them may answer.

    Raises:
        ConfigurationError: a part is something else.

    Crash: a request that was put stays; the same step of the resumed saga waits on. Fails closed.
    """

    def __init__(
        self,
        store: ApprovalStore | None = None,
        notifier: Notifier | str | None = None,
        wal: BaseWAL | None = None,
        policy: ApprovalPolicy | None = None,
        *,
        requester: str = "",
    ) -> None:
        if store is not None and not isinstance(store, ApprovalStore):
            raise ConfigurationError(
                f"A gateway takes a store of approvals, not {type(store).__name__}.",
                fix="ApprovalGateway(store=FileApprovalStore())",
            )
        named = isinstance(notifier, str)
        if not (notifier is None or named or callable(getattr(notifier, "notify", None))):
            raise ConfigurationError("The notifier has no `notify` method.")
        if policy is not None and not isinstance(policy, ApprovalPolicy):
            raise ConfigurationError(f"policy= takes an ApprovalPolicy, not {policy!r}.")
        self._store = store
        self.notifier = notifier
        self.wal = wal
        self.policy = policy or ApprovalPolicy()
        self.requester = requester

    @property
    def answer_within(self) -> float | None:
        """Seconds that people have by this gateway's own policy, or None if it does not say."""
        return self.policy.timeout

    @property
    def timeout(self) -> float:
        """Seconds after which the engine gives the question up by itself."""
        return self._seconds + SLACK

    @property
    def _seconds(self) -> float:
        return ANSWER_WITHIN if self.policy.timeout is None else self.policy.timeout

    @property
    def store(self) -> ApprovalStore:
        """Where requests are kept.

        Raises:
            ConfigurationError: none was given, and no boundary uses this gateway yet.
        """
        if self._store is None:
            raise ConfigurationError(
                "This gateway has no store yet.",
                fix="ApprovalGateway(store=FileApprovalStore())",
            )
        return self._store

    def bound(self, surroundings: Surroundings) -> ApprovalGateway:
        """Return the gateway to use with a log.

        Raises:
            ConfigurationError: a level comes after the time that people have.
        """
        given = self._store
        store = (
            ApprovalStore(surroundings.store(), self.wal or surroundings.wal)
            if given is None
            else given.within(surroundings)
        )
        notifier = self.notifier
        if isinstance(notifier, str):
            notifier = process_plugins().tellers.made(notifier)
        policy = self.policy.within(surroundings.answer_within)
        if store is given and notifier is self.notifier and policy is self.policy:
            return self
        own = copy.copy(self)
        own._store, own.notifier, own.policy = store, notifier, policy  # noqa: SLF001 - its own
        return own

    # --- asking ----------------------------------------------------------------------------------

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Ask, and wait for the answer; the event loop goes on meanwhile.

        Raises:
            StateError: the request could not be stored or read; without it nobody was asked, and
                the call is refused.
        """
        await self._forget_old()
        request.shares = True  # until it is known, also when this is cut off in between
        covered = await self._granted(request)
        request.shares = covered is not None
        if covered is not None:
            request.covered = str(covered["id"])
            return Approval(True, covered["by"], f"granted beforehand ({covered['id']})")
        ear = Ear(self.store.listener, request.id)
        try:
            return await self._conversation(request, ear)
        finally:
            ear.close()

    async def _forget_old(self) -> None:
        """Forget old requests now and then; trouble with that keeps nobody from asking."""
        store, now = self.store, time.monotonic()
        if now >= store.forget_again:
            store.forget_again = now + _FORGETTING
            try:
                await asyncio.to_thread(store.forget_old)
            except StateError as trouble:
                log.warning("old requests could not be forgotten: %s", trouble)

    async def _conversation(self, request: ApprovalRequest, ear: Ear) -> Approval:
        """Put the request, tell people, wait for the answer."""
        ear.prick()
        doc, state = await self._apply(
            request.id, lambda doc, now: document.put(doc, self._asked(request, now), now=now)
        )
        end = time.monotonic() + min(self._seconds, self._left(doc))
        looks = 0
        while state is State.PENDING:
            level = self._due(doc)
            left = end - time.monotonic()
            if level is not None:
                doc, state = await self._tell(doc, level)
            elif left <= 0:
                doc, state = await self._apply(
                    request.id,
                    lambda doc, now: document.expire(_there(doc), now=now, given_up=True),
                )
            else:
                bell = self.store.listener.bell is not None
                await ear.wait(min(left, self._until_next(doc), pause(looks, bell=bell)))
                looks += 1
                ear.prick()
                doc, state = await self._looked(request, doc)
        return self._answer(request, doc, state)

    def _asked(self, request: ApprovalRequest, now: int) -> Asked:
        """Return what is put for a request."""
        about = {
            "id": request.id,
            "saga": request.saga,
            "step": request.step,
            "gen": request.generation,
            "tool": request.tool,
            "rule": request.rule,
            "reason": _text(request.reason, 2000),
            "arguments": _text(request.shown, _LONGEST_SHOWN),
            "requesters": self._requesters(request),
        }
        deadline = now + int(self._seconds * _MICRO)
        valid = int(self.policy.valid_for * _MICRO)
        clocks = moment(self.store.clock)
        return Asked(about, deadline, valid, self.policy.approvers, clocks=clocks)

    def _requesters(self, request: ApprovalRequest) -> list[str]:
        own = (self.requester,) if self.requester else ()
        return [_text(name, 300) for name in (*request.requesters, *own)]

    async def _apply(
        self, request: str, rule: Callable[[Doc | None, int], tuple[Doc, State]]
    ) -> tuple[Doc, State]:
        """Apply a rule to a request, durably; return its document and where it stands."""
        key, now = document.key_of(request), moment(self.store.clock)

        def both(doc: Doc | None) -> tuple[Doc, tuple[Doc, State]]:
            made, state = rule(doc, time_of(doc, now))
            return made, (made, state)

        return await self.store.state.async_transact([key], one(key, both), durable=True)

    async def _granted(self, request: ApprovalRequest) -> Doc | None:
        """Take a share of a standing grant that covers a request; return the grant, or None."""
        taker = grants.Taker(
            request.id,
            request.rule,
            request.exact,
            self._requesters(request),
            self.policy.approvers,
        )
        key, now = grants.key_of(request.tool), moment(self.store.clock)
        rule = one(key, lambda doc: grants.take(doc, taker, now=now))
        return await self.store.state.async_transact([key], rule, durable=True)

    def _left(self, doc: Doc) -> float:
        return float(doc["deadline"] - self._time_of(doc)) / _MICRO

    def _time_of(self, doc: Doc) -> int:
        return time_of(doc, moment(self.store.clock))

    # --- telling people --------------------------------------------------------------------------

    def _since(self, doc: Doc) -> float:
        return float(self._time_of(doc) - doc["asked"]) / _MICRO

    def _due(self, doc: Doc) -> int | None:
        """Return the next level that has to be told now, or None."""
        level = int(doc["level"]) + 1
        levels = self.policy.levels
        if level >= len(levels) or self._since(doc) < levels[level].after_seconds:
            return None
        return level

    def _until_next(self, doc: Doc) -> float:
        level = int(doc["level"]) + 1
        if level >= len(self.policy.levels):
            return self._seconds
        return max(0.0, self.policy.levels[level].after_seconds - self._since(doc))

    async def _tell(self, doc: Doc, level: int) -> tuple[Doc, State]:
        notice = Notice(doc, level, self.policy.levels[level].targets, self._place())
        notifier = self.notifier
        try:
            if isinstance(notifier, str):
                notifier = process_plugins().tellers.made(notifier)
            if notifier is not None:
                await told_in_time(notifier, notice, min(TELLING, max(0.0, self._left(doc))))
        except Exception as trouble:
            log.exception("level %d of the request %s was not told", level, notice.id)
            if level == 0:
                note = f"nobody could be told ({one_line(trouble)})"
                return await self._apply(
                    notice.id, lambda doc, now: document.refuse(_there(doc), note=note, now=now)
                )
        return await self._apply(
            notice.id, lambda doc, _: document.notified(_there(doc), level=level)
        )

    def _place(self) -> str:
        wal = self.store.wal
        address = "" if wal is None else wal.address
        path = address.removeprefix("file:")
        return "" if path == address else f" --wal-path {quoted(path)}"

    # --- waiting ---------------------------------------------------------------------------------

    async def _looked(self, request: ApprovalRequest, doc: Doc) -> tuple[Doc, State]:
        """Read the request again; a store that does not answer is asked again later."""
        try:
            found = await self.store.state.async_get(document.key_of(request.id))
        except StateError as trouble:
            log.warning("the request %s could not be read: %s", request.id, trouble)
            return doc, State.PENDING
        there = _there(found)
        return there, document.state_of(there)

    def _answer(self, request: ApprovalRequest, doc: Doc, state: State) -> Approval:
        if state is State.EXPIRED:
            return Approval(False, "nobody", "nobody answered in time", expired=True)
        decision = doc["decision"] or {}
        by, note = str(decision.get("by") or "agent-saga"), str(decision.get("note") or "")
        return Approval(state in (State.GRANTED, State.USED), by, note)

    # --- the effect starts -----------------------------------------------------------------------

    def consume(self, request: ApprovalRequest) -> Use:
        """Return the use that consumes a grant; it answers with why it cannot be, or "".

        Called when everything has let the step go on, directly before its announcement.
        """
        if request.covered:
            return self.stands(request)
        key, now = document.key_of(request.id), moment(self.store.clock)
        step, generation = request.step, request.generation

        def using(doc: Doc | None) -> tuple[Doc | None, str]:
            at = time_of(doc, now)
            return document.consume(doc, step=step, generation=generation, now=at)

        rule = one(key, using)
        return transaction(self.store.state, [key], rule, durable=True)

    def stands(self, request: ApprovalRequest) -> Use:
        """Return the use that looks whether a yes still counts; it answers with why not, or "".

        Called before the effect and before every further attempt: somebody may have taken it back.
        """
        if not request.covered:
            return looking(self.store.state, document.key_of(request.id), document.why_not)

        def judge(doc: Doc | None) -> str:
            now = moment(self.store.clock)
            return grants.why_not(doc, grant=request.covered, request=request.id, now=now)

        return looking(self.store.state, grants.key_of(request.tool), judge)

    def release(self, request: ApprovalRequest) -> Use | None:
        """Return the use that gives back the share of a standing grant: the step did not start.

        None if it certainly has none.
        """
        if not request.shares:
            return None
        key = grants.key_of(request.tool)
        rule = one(key, lambda doc: grants.give_back(doc, request.id))
        return transaction(self.store.state, [key], rule, durable=True)


def _there(doc: Doc | None) -> Doc:
    if doc is None:
        raise StateError("The request for approval is gone from the store.")
    return doc


def _text(text: str, longest: int) -> str:
    """Return a text that a store can carry; a long one is cut, and says so."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    return plain if len(plain) <= longest else f"{plain[: longest - 8]}… (cut)"
