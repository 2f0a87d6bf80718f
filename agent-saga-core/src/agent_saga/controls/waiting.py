"""Questions that wait without a thread: the run is suspended, and resumed with the answers.

Rules of this part:

- A provider of this kind never waits. Without an answer it raises `ApprovalPending`: the call does
  not run, and the saga is suspended, until somebody resumes the run with the answer.
- An answer counts for the request whose id it carries, and for no other.
- Where a run cannot wait, nobody can be asked: the call is refused. Fails closed.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping

from agent_saga.controls.approvals import Approval, ApprovalRequest
from agent_saga.errors import ApprovalPending, ConfigurationError


class Answers:
    """The answers that a run was resumed with, by request id.

    Args:
        given: those that are known from the start.
    """

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, Approval] | None = None) -> None:
        self._given = dict(given or {})

    def find(self, request: str) -> Approval | None:
        """Return the answer to a request, or None."""
        return self._given.get(request)

    def add(self, request: str, answer: Approval) -> None:
        """Take in an answer; the first one to a request counts."""
        self._given.setdefault(request, answer)


_answers: contextvars.ContextVar[Answers | None] = contextvars.ContextVar(
    "agent_saga_answers", default=None
)


@contextlib.contextmanager
def answering(answers: Answers | None) -> Iterator[None]:
    """Let a run wait for answers, and give it those that it has; None where it cannot wait."""
    token = _answers.set(answers)
    try:
        yield
    finally:
        _answers.reset(token)


def answers_here() -> Answers | None:
    """Return the answers of the run that is going on here; None where it cannot wait."""
    return _answers.get()


class WaitingApprovals:
    """Asks by suspending the run; its answers come when it is resumed."""

    def ask(self, request: ApprovalRequest) -> Approval:
        """Return the answer that the run was resumed with.

        Raises:
            ApprovalPending: there is none yet.
            ConfigurationError: this run cannot wait for one.
        """
        answers = answers_here()
        if answers is None:
            raise ConfigurationError("this run cannot wait for an answer")
        found = answers.find(request.id)
        if found is None:
            raise ApprovalPending(
                f"{request.tool} waits for an approval: {request.reason}",
                question=request.as_dict(),
            )
        return found
