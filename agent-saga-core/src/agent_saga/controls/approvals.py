"""Asking a human: the request, the answer, and the terminal as the simplest way to ask.

Rules of this part:

- A request is bound, by its id, to saga, step, generation, tool, rule and arguments. An answer
  counts for exactly that; arguments that changed while the human thought are refused.
- An approver who is not named or is among those who ask, an answer that is none, a provider that
  raises or takes too long: the call is refused, whoever the provider is. Fails closed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Mapping
from hashlib import sha256
from typing import Any, Protocol, TextIO

from agent_saga.controls.humans.names import blank, one_of
from agent_saga.domain.identity import joined
from agent_saga.domain.printing import printable
from agent_saga.errors import ApprovalDenied
from agent_saga.wal.encoding import decode, masked


class ApprovalRequest:
    """What a human is asked.

    Attributes:
        id: a digest of everything the answer is bound to.
        saga, step, generation, tool, rule, reason: what is asked, and why.
        arguments: the call's arguments, secrets masked; shown: the same as JSON text.
        exact: the arguments as rules and limits see them, for standing grants; nothing of them is
            kept.
        requesters: who asks; none of them may answer.
        covered: the standing grant that answers it, if one does.
        shares: a share of a standing grant may be kept under its id.
    """

    __slots__ = (
        "arguments",
        "covered",
        "exact",
        "generation",
        "id",
        "reason",
        "requesters",
        "rule",
        "saga",
        "shares",
        "shown",
        "step",
        "tool",
    )

    def __init__(
        self,
        saga: str,
        step: str,
        generation: int,
        tool: str,
        rule: str,
        reason: str,
        arguments: object,
        mac: bytes,
        requesters: tuple[str, ...] = ("agent",),
    ) -> None:
        self.saga = saga
        self.step = step
        self.generation = generation
        self.tool = tool
        self.rule = rule
        self.reason = reason
        encoded, _ = masked(arguments)
        self.arguments: Any = decode(encoded)
        self.shown = encoded.decode("utf-8")
        self.exact: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
        self.requesters = requesters
        self.covered = ""
        self.shares = False
        self.id = request_id(saga, step, generation, tool, rule, mac)

    def as_dict(self) -> dict[str, Any]:
        """Return the request as plain data, to be put where an answer can wait."""
        names = ("id", "tool", "rule", "reason", "arguments")
        return {name: getattr(self, name) for name in names}


def request_id(saga: str, step: str, generation: int, tool: str, rule: str, mac: bytes) -> str:
    """Return the id of a request: a digest of everything that its answer is bound to."""
    bound = (saga, step, str(generation), tool, rule, mac.hex())
    return sha256(joined(bound)).hexdigest()[:32]


class Approval:
    """A human's answer.

    Args:
        approved: whether the call may run.
        by: who says so; must not be blank.
        note: a remark for the record.
        expired: nobody answered in time.
    """

    __slots__ = ("approved", "by", "expired", "note")

    def __init__(self, approved: bool, by: str, note: str = "", *, expired: bool = False) -> None:
        self.expired = expired
        self.approved = approved
        self.by = by
        self.note = note


class ApprovalProvider(Protocol):
    """Whoever can ask a human."""

    def ask(self, request: ApprovalRequest) -> Approval | Awaitable[Approval]:
        """Ask, and return the answer; may be asynchronous."""


def approver_of(answer: object, request: ApprovalRequest) -> str:
    """Return who approved the request.

    Raises:
        ApprovalDenied: the answer is a no, or no answer.
    """
    if not isinstance(answer, Approval) or type(answer.approved) is not bool:
        raise denied(request, f"the provider answered {type(answer).__name__}, not an Approval")
    by = answer.by.strip() if isinstance(answer.by, str) and not blank(answer.by) else ""
    if answer.expired:
        raise denied(request, "nobody answered in time")
    if not answer.approved:
        note = f": {answer.note}" if answer.note else ""
        raise denied(request, f"{by or 'nobody'} said no{note}")
    if not by:
        raise denied(request, "the approver is not named")
    if one_of(by, request.requesters):
        raise denied(request, f"{by} is among those who ask, and nobody approves their own request")
    return by


def denied(request: ApprovalRequest, reason: str) -> ApprovalDenied:
    """Return the refusal of a request."""
    return ApprovalDenied(
        f"{request.tool} was not approved: {reason}.",
        rule=request.rule,
        reason=reason,
        fix="Ask again only if something changed, or do without it.",
    )


class ConsoleApprovals:
    """Asks on the terminal; without one the answer is no.

    Args:
        stdin, stdout: the streams to use; the process's own when not given.
        approver: who sits at the terminal; the user's login name when not given.
    """

    def __init__(
        self,
        *,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        approver: str | None = None,
    ) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._approver = approver

    def ask(self, request: ApprovalRequest) -> Approval:
        """Show the request and read the answer; only `y` and `yes` approve."""
        stdin = self._stdin or sys.stdin
        if stdin is None or not stdin.isatty():
            return Approval(False, "nobody", "there is no terminal to ask on")
        self._show(request)
        answer = stdin.readline().strip().lower()
        return Approval(answer in ("y", "yes"), self._approver or _user(), answer)

    def _show(self, request: ApprovalRequest) -> None:
        stdout = self._stdout or sys.stdout
        shown = json.dumps(request.arguments, indent=2, ensure_ascii=True, default=str)
        stdout.write(
            f"\nApproval needed: {printable(request.tool)}\n  why: {printable(request.reason)}\n"
            f"  arguments: {shown}\n  id: {request.id}\nApprove? [y/N] "
        )
        stdout.flush()


def _user() -> str:
    from getpass import getuser  # noqa: PLC0415 - only who approves at a terminal needs it

    return getuser()
