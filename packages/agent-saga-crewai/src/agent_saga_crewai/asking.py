"""Asking a human by letting the run wait, and answering it: in any process.

    gate = PreFlightGate(approval_provider=CrewApprovals())
    …
    waiting = saga_run_sync(crew, inputs, key="order-17", kit=kit)
    saga_run_sync(crew, inputs, key="order-17", kit=kit, resume=approve(by="ann"))

Rules of this part:

- CrewAI gives a tool of a crew no way to wait. So the crew is stopped, the saga is suspended, no
  thread waits; when the run is resumed, the crew begins again, and what it did is given again from
  the log up to where it waited.
- An answer is bound to what was asked: to the digest of the call and its arguments, or to the text
  of the question.
- What is no answer is refused before anything runs, and the question still waits.
- A run that cannot be gone on with (it has no key) cannot ask: the call is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent_saga.controls.approvals import Approval
from agent_saga.controls.waiting import Answers, WaitingApprovals, answers_here
from agent_saga.engine.boundary import current_scope
from agent_saga.engine.scope import Scope
from agent_saga.engine.tool import declare
from agent_saga.engine.wrap import Invocation
from agent_saga.errors import ApprovalPending, ConfigurationError, SuspendRequested

__all__ = ["CrewApprovals", "HumanAsked", "Waiting", "approve", "ask_human", "deny"]

HUMAN: Final = "crewai.human"
_TO_DO: Final = 'Answer with resume=approve(by="…") or resume=deny(by="…").'


class CrewApprovals(WaitingApprovals):
    """Asks by stopping the run; give it to the gate as its `approval_provider`."""


class HumanAsked(SuspendRequested):
    """A tool asked a human something; the run waits for the answer.

    Args:
        question: what was asked, as plain data: `id` and `text`.
    """

    def __init__(self, question: Mapping[str, Any]) -> None:
        super().__init__(f"a human was asked: {question['text']}")
        self.question = dict(question)


class Waiting(NamedTuple):
    """What a run returns that waits for a human.

    Attributes:
        question: what it waits for: `id`, and `text` of a question, or `tool`, `rule`, `reason` and
            `arguments` of an approval.
        key: the run's key; the run is gone on with under it.
    """

    question: Mapping[str, Any]
    key: str


def approve(by: str, note: str = "") -> dict[str, Any]:
    """Return the answer that lets a call run, for `resume=`.

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


def ask_human(question: str) -> str:
    """Ask a human from inside a tool or a flow's method, and return the answer.

    Args:
        question: what is asked; the same text is the same question.

    Raises:
        HumanAsked: there is no answer yet; it stops the run, which then waits.
        ConfigurationError: the run cannot wait for one.

    When the run is resumed, the tool runs again from its first line. Ask before the tool's effect,
    and declare it with `asks_first=True`; what asks after an effect has an unknown outcome.
    """
    answers, scope = answers_here(), current_scope.get()
    if not isinstance(answers, RunAnswers) or scope is None:
        raise ConfigurationError(
            "This run cannot wait for a human's answer.",
            fix="Run it with saga_run(…, key='…'), and give the kit a log in files.",
        )
    request = hashlib.sha256(f"question {question}".encode()).hexdigest()
    try:
        return str(_step(answers, scope, request).run())
    except _NoAnswer:
        raise HumanAsked({"id": request, "text": question}) from None


class _NoAnswer(Exception):
    """There is no answer yet."""


def _step(answers: RunAnswers, scope: Scope, request: str) -> Invocation:
    """Return the reading of an answer as a step, which a run that begins again is given again."""

    def read() -> str:
        found = answers.said.get(request)
        if found is None:
            raise _NoAnswer
        return found

    tool = declare(read, name=HUMAN, semantics="REVERSIBLE", not_applied_on=(_NoAnswer,))
    tool.declares = None
    return Invocation(scope, tool, {"question": request}, (), {}, f"answer {request}")


class RunAnswers(Answers):
    """The answers of a run, those of its earlier parts included.

    Args:
        kept: what the suspended saga kept, as `to_keep` made it.

    Attributes:
        said: the answers to questions, by their ids.
        waits: the question that the run waits for, or None.
    """

    __slots__ = ("plain", "said", "waits")

    def __init__(self, kept: object = None) -> None:
        found = kept if isinstance(kept, Mapping) else {}
        self.plain: dict[str, Mapping[str, Any]] = dict(found.get("answers") or {})
        self.said: dict[str, str] = dict(found.get("said") or {})
        self.waits: Mapping[str, Any] | None = found.get("question")
        super().__init__({request: _approval(given) for request, given in self.plain.items()})

    def take(self, answer: object) -> None:
        """Take in the answer to the question that the run waits for.

        Raises:
            ConfigurationError: it waits for none, or this is none.
        """
        question = self.waits
        if question is None:
            raise ConfigurationError(
                "The run was resumed with an answer, and waits for none.",
                fix="Run it without resume=.",
            )
        if "tool" not in question:
            if not isinstance(answer, str):
                raise ConfigurationError(
                    f"The run waits for a text, the answer to: {question['text']}",
                    fix="Resume it with resume='…'.",
                )
            self.said[str(question["id"])] = answer
        else:
            given = _checked(answer, question)
            self.plain[str(question["id"])] = given
            self.add(str(question["id"]), _approval(given))
        self.waits = None

    def to_keep(self, question: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what a suspended saga keeps of the answers, as plain data."""
        answers = {request: dict(given) for request, given in self.plain.items()}
        return {"answers": answers, "said": dict(self.said), "question": question}


def question_of(error: BaseException) -> Mapping[str, Any] | None:
    """Return what an error says that the run waits for; None if it says nothing of the kind."""
    return error.question if isinstance(error, (ApprovalPending, HumanAsked)) else None


def _approval(answer: Mapping[str, Any]) -> Approval:
    return Approval(answer.get("approved") is True, str(answer["by"]), str(answer.get("note", "")))


def _checked(answer: object, question: Mapping[str, Any]) -> dict[str, Any]:
    tool = question["tool"]
    if not isinstance(answer, Mapping) or not isinstance(answer.get("approved"), bool):
        raise ConfigurationError(
            f"The run waits for an approval of {tool}, and was resumed with something else.",
            fix=_TO_DO,
        )
    by, note = answer.get("by"), answer.get("note", "")
    if not isinstance(by, str) or not by.strip() or not isinstance(note, str):
        raise ConfigurationError(f"The answer about {tool} does not say who gives it.", fix=_TO_DO)
    return {"approved": answer["approved"], "by": by, "note": note}
