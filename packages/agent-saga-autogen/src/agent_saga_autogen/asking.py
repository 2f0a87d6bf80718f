"""Asking a human by letting the run wait, and answering it: in any process.

    gate = PreFlightGate(approval_provider=AutoGenApprovals())
    …
    waiting = await saga_run(team, "…", kit=kit)                # a Waiting
    store(json.dumps(waiting.state))
    …
    await saga_run(team, kit=kit, state=stored, resume=approve(by="ann"))

Rules of this part:

- AutoGen gives a tool no way to wait. So the agent is stopped before its model is asked again, what
  its calls were told is set aside, the saga is suspended, and no thread waits. When the run is gone
  on with, the calls that waited are made, those beside them are not repeated, and the model is told
  of all.
- An answer is bound to what was asked: to the digest of the call and its arguments, or to the text
  of the question.
- What is no answer is refused before anything runs, and the question still waits.
- Only a call of an agent that is run itself, or is a member of the team that is, can wait. Another
  one that would have to is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from agent_saga.controls.approvals import Approval
from agent_saga.controls.waiting import Answers, WaitingApprovals, answers_here
from agent_saga.errors import ConfigurationError
from agent_saga_autogen.calls import calling

__all__ = ["AutoGenApprovals", "HumanAsked", "Waiting", "approve", "ask_human", "deny"]

_TO_DO: Final = 'Answer with resume=approve(by="…") or resume=deny(by="…").'


class AutoGenApprovals(WaitingApprovals):
    """Asks by stopping the run; give it to the gate as its `approval_provider`."""


class HumanAsked(Exception):
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
        questions: what it waits for, each with its `id`; and `text` of a question, or `tool`,
            `rule`, `reason` and `arguments` of an approval.
        state: what the run is gone on with, as plain data: the saga's id, and what the agents
            remember. It is good once.
    """

    questions: tuple[Mapping[str, Any], ...]
    state: Mapping[str, Any]


def approve(*, by: str, note: str = "") -> dict[str, Any]:
    """Return the answer that lets a call run, or a run go on after a failure, for `resume=`.

    Args:
        by: who says so; must not be blank.
        note: a remark for the record.
    """
    return {"approved": True, "by": by, "note": note}


def deny(*, by: str, note: str = "") -> dict[str, Any]:
    """Return the answer that refuses a call, or undoes the run after a failure, for `resume=`.

    Args:
        by: who says so; must not be blank.
        note: why; a model whose call is refused is told it.
    """
    return {"approved": False, "by": by, "note": note}


def ask_human(question: str) -> str:
    """Ask a human from inside a tool, and return the answer.

    Args:
        question: what is asked; the same text is the same question.

    Raises:
        HumanAsked: there is no answer yet; the run then waits.
        ConfigurationError: the call cannot wait for one.

    When the run is gone on with, the tool runs again from its first line. Ask before the tool's
    effect, and declare it with `asks_first=True`; what asks after an effect has an unknown outcome.
    """
    answers, call = answers_here(), calling.get()
    made_by_a_model = call is not None and call.waits and len(call.path) == 2  # agent and call
    if not isinstance(answers, RunAnswers) or not made_by_a_model:
        raise ConfigurationError(
            "This call cannot wait for a human's answer.",
            fix="Give the kit gate=PreFlightGate(approval_provider=AutoGenApprovals()), and let an "
            "agent that saga_run runs, or a member of its team, call the tool.",
        )
    request = hashlib.sha256(f"question {question}".encode()).hexdigest()
    if request not in answers.said:
        raise HumanAsked({"id": request, "text": question})
    return answers.said[request]


class RunAnswers(Answers):
    """The answers of a run, those of its earlier parts included.

    Args:
        kept: what the suspended saga kept, as `to_keep` made it.

    Attributes:
        said: the answers to questions, by their ids.
        open: the questions that the run waits for.
    """

    __slots__ = ("open", "plain", "said")

    def __init__(self, kept: object = None) -> None:
        found = kept if isinstance(kept, Mapping) else {}
        self.plain: dict[str, Mapping[str, Any]] = dict(found.get("answers") or {})
        self.said: dict[str, str] = dict(found.get("said") or {})
        self.open: list[Mapping[str, Any]] = list(found.get("questions") or ())
        super().__init__({request: _approval(given) for request, given in self.plain.items()})

    def take(self, given: object) -> None:
        """Take in answers: one for all that are open, or several by the questions' ids.

        Raises:
            ConfigurationError: the run waits for none, or this is none.
        """
        if not self.open:
            raise ConfigurationError("The run was given an answer, and waits for none.")
        checked = [(question, _checked(one, question)) for question, one in self._meant(given)]
        for question, answer in checked:
            request = str(question["id"])
            if isinstance(answer, str):
                self.said[request] = answer
            else:
                self.plain[request] = answer
                self.add(request, _approval(answer))

    def _meant(self, given: object) -> list[tuple[Mapping[str, Any], object]]:
        if not isinstance(given, Mapping) or "approved" in given:
            return [(question, given) for question in self.open]
        known = {str(question["id"]): question for question in self.open}
        strange = sorted(set(map(str, given)) - set(known))
        if strange:
            raise ConfigurationError(f"The run waits for no answer to {', '.join(strange)}.")
        return [(known[str(request)], answer) for request, answer in given.items()]

    def to_keep(self, questions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what a suspended saga keeps of the answers, as plain data."""
        answers = {request: dict(given) for request, given in self.plain.items()}
        return {"answers": answers, "said": dict(self.said), "questions": list(questions)}


def _approval(answer: Mapping[str, Any]) -> Approval:
    return Approval(answer.get("approved") is True, str(answer["by"]), str(answer.get("note", "")))


def _checked(answer: object, question: Mapping[str, Any]) -> dict[str, Any] | str:
    if "tool" not in question:
        if isinstance(answer, str):
            return answer
        raise ConfigurationError(
            f"The run waits for a text, the answer to: {question['text']}",
            fix="Resume it with resume='…', or with {id: answer} where several questions are open.",
        )
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
