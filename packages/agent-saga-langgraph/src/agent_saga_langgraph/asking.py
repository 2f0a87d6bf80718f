"""Approvals through the graph: a question of the gate is an interrupt, its answer a resume.

    gate = PreFlightGate(approval_provider=GraphApprovals())
    …
    agent.invoke(Command(resume=approve(by="ann")), config)

Rules of this part:

- The question is put before the effect. The graph stops, the saga is suspended, no thread waits;
  any process resumes the thread with the answer.
- An answer is bound to what was asked: to the digest of the call and its arguments, not to the
  thread. It is taken out of the `Command` and kept in the log; the graph sees the rest, so that the
  graph's own interrupts keep their order.
- What is no answer is refused before anything runs, and the question still waits.
- A run that cannot wait (no checkpointer) cannot ask: the call is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from langchain_core.runnables.config import ensure_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, Interrupt

from agent_saga.controls.approvals import Approval
from agent_saga.controls.waiting import Answers, WaitingApprovals
from agent_saga.errors import ApprovalPending, ConfigurationError

__all__ = ["GraphApprovals", "approve", "deny"]

MARK: Final = "agent_saga"
_QUESTION: Final = "approval"
_TO_DO: Final = 'Answer with Command(resume=approve(by="…")) or Command(resume=deny(by="…")).'


class GraphApprovals(WaitingApprovals):
    """Asks by interrupting the graph; give it to the gate as its `approval_provider`."""


def approve(by: str, note: str = "") -> dict[str, Any]:
    """Return the answer that lets a call run, for `Command(resume=…)`.

    Args:
        by: who says so; must not be blank.
        note: a remark for the record.
    """
    return {"approved": True, "by": by, "note": note}


def deny(by: str, note: str = "") -> dict[str, Any]:
    """Return the answer that refuses a call; the model is told the note.

    Args:
        by: who says so.
        note: why.
    """
    return {"approved": False, "by": by, "note": note}


def interrupting(pending: ApprovalPending) -> GraphInterrupt:
    """Return what stops the graph with a question."""
    namespace = str((ensure_config().get("configurable") or {}).get("checkpoint_ns") or "")
    value = {MARK: _QUESTION, **pending.question}
    return GraphInterrupt((Interrupt.from_ns(value, ns=namespace),))


def kept(answers: object) -> dict[str, Approval]:
    """Return the answers that a suspended saga keeps, by request id."""
    found = answers.get("answers") if isinstance(answers, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    return {str(request): _approval(answer) for request, answer in found.items()}


def to_keep(answers: GraphAnswers) -> dict[str, Any]:
    """Return what a suspended saga keeps of the answers, as plain data."""
    return {"answers": {request: dict(given) for request, given in answers.plain.items()}}


class GraphAnswers(Answers):
    """The answers of a run, those of its earlier parts included.

    Args:
        earlier: what the suspended saga kept.

    Attributes:
        plain: the answers as plain data, by request id.
    """

    __slots__ = ("plain",)

    def __init__(self, earlier: object = None) -> None:
        super().__init__(kept(earlier))
        given = earlier.get("answers") if isinstance(earlier, Mapping) else None
        self.plain: dict[str, Mapping[str, Any]] = dict(given or {})

    def take(self, request: str, answer: Mapping[str, Any]) -> None:
        """Take in an answer from a human."""
        self.add(request, _approval(answer))
        self.plain.setdefault(request, answer)


def _approval(answer: Mapping[str, Any]) -> Approval:
    return Approval(answer.get("approved") is True, str(answer["by"]), str(answer.get("note", "")))


def taken(given: Any, interrupts: Iterable[Interrupt], answers: GraphAnswers) -> Any:
    """Take the answers to our questions out of a run's input; return what is left for the graph.

    What is left is given to the interrupt that it answers, by its id: LangGraph keeps an answer
    without one for whatever interrupt comes next, also in a later run that brings no answer.

    Args:
        given: the run's input.
        interrupts: those that the thread waits at.
        answers: where the answers go.

    Raises:
        ConfigurationError: an answer is missing or is none; nothing was changed.
    """
    waiting = {i.id: i.value for i in interrupts if not _is_answered(i.value, answers)}
    questions = {key: value for key, value in waiting.items() if is_question(value)}
    if not waiting or not isinstance(given, Command) or given.resume is None:
        return given
    if not questions and len(waiting) > 1:
        return given  # the framework says what is missing
    replies = _by_interrupt(given.resume, waiting)
    checked = {key: _checked(replies[key], questions[key]) for key in replies if key in questions}
    for key, answer in checked.items():
        answers.take(str(questions[key]["id"]), answer)
    rest = {key: value for key, value in replies.items() if key not in questions}
    left = dataclasses.replace(given, resume=rest or None)
    return left if rest or left.update or left.goto else None


def is_question(value: object) -> bool:
    """Say whether an interrupt's value is a question of the gate."""
    return isinstance(value, Mapping) and value.get(MARK) == _QUESTION


def _is_answered(value: Any, answers: GraphAnswers) -> bool:
    """Say whether a question was answered in an earlier run; some versions still list it."""
    return is_question(value) and value.get("id") in answers.plain


def _by_interrupt(resume: Any, waiting: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(resume, Mapping) and resume and set(resume) <= set(waiting):
        return dict(resume)
    if len(waiting) == 1:
        return dict.fromkeys(waiting, resume)
    listed = "".join(f"\n  {key}: {_told(value)}" for key, value in waiting.items())
    raise ConfigurationError(
        f"The thread waits for {len(waiting)} answers, and the resume does not say which one it "
        f"gives:{listed}",
        fix='Give them by id: Command(resume={"ID": approve(by="…"), …}).',
    )


def _told(value: Any) -> str:
    return f"{value['tool']}, {value['reason']}" if is_question(value) else str(value)[:100]


def _checked(answer: object, question: Mapping[str, Any]) -> dict[str, Any]:
    tool = question["tool"]
    if not isinstance(answer, Mapping) or not isinstance(answer.get("approved"), bool):
        raise ConfigurationError(
            f"The thread waits for an approval of {tool}, and was resumed with something else.",
            fix=_TO_DO,
        )
    by, note = answer.get("by"), answer.get("note", "")
    if not isinstance(by, str) or not by.strip() or not isinstance(note, str):
        raise ConfigurationError(f"The answer about {tool} does not say who gives it.", fix=_TO_DO)
    if answer.get("id", question["id"]) != question["id"]:
        raise ConfigurationError(
            f"The answer is to another question than the one that waits, about {tool}.", fix=_TO_DO
        )
    return {"approved": answer["approved"], "by": by, "note": note}
