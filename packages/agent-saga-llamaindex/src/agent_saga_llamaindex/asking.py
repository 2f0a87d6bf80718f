"""Approvals through events: a question of the gate is an event of the run, and so is its answer.

    gate = PreFlightGate(approval_provider=EventApprovals())
    …
    waiting = await saga_run(agent, "wire 100")
    await saga_run(agent, approve(by="ann"), ctx=waiting.context)

Rules of this part:

- The question is put before the effect: the step of the workflow waits for an event, as it does by
  `ctx.wait_for_event`. When nothing of the run goes on by itself, the saga is suspended, no thread
  waits; any process goes on with the run's context.
- An answer is bound to what was asked: to the digest of the call and its arguments.
- Somebody must be named who answers.
- A run that cannot wait cannot ask: the call is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from llama_index.core.workflow import HumanResponseEvent, InputRequiredEvent

from agent_saga.controls.approvals import Approval
from agent_saga.controls.waiting import Answers, WaitingApprovals
from agent_saga.errors import ConfigurationError

__all__ = [
    "ApprovalGiven",
    "ApprovalRequired",
    "EventApprovals",
    "Waiting",
    "approve",
    "deny",
]

APPROVALS: Final = "EventApprovals()"
"""What to give a gate that has nobody to ask."""


class EventApprovals(WaitingApprovals):
    """Asks by an event of the run; give it to the gate as its `approval_provider`."""


class ApprovalRequired(InputRequiredEvent):
    """The gate asks whether a call may be made, or a run may go on after a tool failed.

    Attributes:
        request: the question's id; tool, rule, reason, arguments: what is asked, and why.
        prefix: the same in one line.
    """

    prefix: str = ""
    request: str
    tool: str
    rule: str
    reason: str
    arguments: Any = None


class ApprovalGiven(HumanResponseEvent):
    """A human's answer to an `ApprovalRequired`.

    Attributes:
        request: the question's id; approved: whether it may be; by: who says so; note: a remark.
    """

    request: str
    approved: bool
    by: str
    note: str = ""


class Answer(NamedTuple):
    """What a human said.

    Attributes:
        approved: whether it may be; by: who says so; note: a remark for the record.
        request: the id of the question that is meant; empty for all that wait.
    """

    approved: bool
    by: str
    note: str = ""
    request: str = ""


class Waiting(NamedTuple):
    """What a run returns that waits for a human.

    Attributes:
        events: what it asked, in order: the `InputRequiredEvent`s, questions of the gate among them
            as `ApprovalRequired`.
        context: the run's context as plain data, to be stored; any process goes on with it, once.
        saga: the id of the saga in the log; `agent-saga show` takes it.
    """

    events: tuple[Any, ...]
    context: dict[str, Any]
    saga: str


def approve(*, by: str, note: str = "", event: Any = None) -> Answer:
    """Say yes, and return what `saga_run` goes on with.

    Args:
        by: who says so; must not be blank.
        note: a remark for the record.
        event: which `ApprovalRequired` is meant; all that wait when not given.

    Raises:
        ConfigurationError: nobody is named, or the event asks for no approval.
    """
    return _answer(Answer(approved=True, by=by, note=note), event)


def deny(*, by: str, note: str = "", event: Any = None) -> Answer:
    """Say no, and return what `saga_run` goes on with; the model is told the reason.

    Args:
        by: who says so; must not be blank.
        note: why.
        event: which `ApprovalRequired` is meant; all that wait when not given.

    Raises:
        ConfigurationError: nobody is named, or the event asks for no approval.
    """
    return _answer(Answer(approved=False, by=by, note=note), event)


def _answer(answer: Answer, event: Any) -> Answer:
    if not isinstance(answer.by, str) or not answer.by.strip():
        raise ConfigurationError("The answer does not say who gives it.", fix='Give by="…".')
    if event is None:
        return answer
    if not isinstance(event, ApprovalRequired):
        raise ConfigurationError(
            f"{type(event).__name__} asks for no approval.",
            fix="Give it an ApprovalRequired of Waiting.events.",
        )
    return answer._replace(request=event.request)


class RunAnswers(Answers):
    """The answers of a run, those of its earlier parts included.

    Args:
        awaits: what the suspended saga kept.

    Attributes:
        plain: the answers as plain data, by request id.
        open: the questions of the gate that nobody has answered, by request id.
    """

    __slots__ = ("open", "plain")

    def __init__(self, awaits: object = None) -> None:
        super().__init__()
        kept = awaits if isinstance(awaits, Mapping) else {}
        self.plain: dict[str, list[Any]] = {}
        self.open: dict[str, Mapping[str, Any]] = dict(kept.get("questions") or {})
        for request, plain in (kept.get("answers") or {}).items():
            self._take(request, Answer(bool(plain[0]), str(plain[1]), str(plain[2])))

    def take(self, answer: Answer | ApprovalGiven) -> list[ApprovalGiven]:
        """Take in an answer; return the events that tell the run of it.

        Raises:
            ConfigurationError: nothing of the kind waits.
        """
        meant = [answer.request] if answer.request else list(self.open)
        if not meant or any(request not in self.open for request in meant):
            raise ConfigurationError(
                "The run was given an answer to a question of the gate, and waits for none of it.",
                fix="Give a HumanResponseEvent to a run that waits for an event of its own.",
            )
        given = Answer(answer.approved, answer.by, answer.note)
        for request in meant:
            self._take(request, given)
        return [event_of(request, given) for request in meant]

    def hear(self, event: ApprovalGiven) -> None:
        """Take in an answer that came to the run as an event; the first one counts."""
        self._take(event.request, Answer(event.approved, event.by, event.note))

    def _take(self, request: str, answer: Answer) -> None:
        self.open.pop(request, None)
        self.plain.setdefault(request, [answer.approved, answer.by, answer.note])
        self.add(request, Approval(answer.approved, answer.by, answer.note))


def event_of(request: str, answer: Answer) -> ApprovalGiven:
    """Return the event that tells a run of an answer."""
    return ApprovalGiven(request=request, approved=answer.approved, by=answer.by, note=answer.note)


def asked_by(question: Mapping[str, Any]) -> ApprovalRequired:
    """Return the event that puts a question of the gate."""
    return ApprovalRequired(
        prefix=f"{question['tool']}: {question['reason']}",
        request=str(question["id"]),
        tool=str(question["tool"]),
        rule=str(question["rule"]),
        reason=str(question["reason"]),
        arguments=question.get("arguments"),
    )
