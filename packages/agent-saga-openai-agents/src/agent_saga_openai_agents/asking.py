"""Approvals through the SDK: a question of the gate is an interruption, its answer a resume.

    gate = PreFlightGate(approval_provider=RunStateApprovals())
    …
    state = result.to_state()
    await saga_run(agent, approve(state, by="ann"))

Rules of this part:

- The question is put before the effect, by the tool's `needs_approval`. The run stops, the saga is
  suspended, no thread waits; any process goes on with the run's state.
- An answer is bound to what was asked: to the digest of the call and its arguments. The framework's
  own `state.approve(…)` names nobody; a call that the gate asked about is then refused, unless the
  provider is told in whose name such answers are given.
- A run that cannot wait cannot ask: the call is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from agents import RunState

from agent_saga.controls.approvals import Approval, ApprovalRequest
from agent_saga.controls.waiting import Answers, WaitingApprovals, answers_here
from agent_saga.errors import ApprovalPending, ConfigurationError
from agent_saga_openai_agents.calls import calling

__all__ = ["RunStateApprovals", "approve", "deny"]

_NOTED: Final = "_agent_saga_answers"


class RunStateApprovals(WaitingApprovals):
    """Asks by interrupting the run; give it to the gate as its `approval_provider`.

    Args:
        by: in whose name an answer is given that `state.approve(…)` gave; none is accepted when it
            is empty.
    """

    def __init__(self, *, by: str = "") -> None:
        self._by = by.strip()

    def ask(self, request: ApprovalRequest) -> Approval:
        """Return the answer that the run was resumed with.

        Raises:
            ApprovalPending: there is none yet.
            ConfigurationError: this run cannot wait for one.
        """
        try:
            return super().ask(request)
        except ApprovalPending:
            call, answers = calling.get(), answers_here()
            approved = isinstance(answers, RunAnswers) and call is not None and call.released
            if not self._by or not approved:
                raise
            return Approval(approved=True, by=self._by)


class Answer(NamedTuple):
    """What a human said.

    Attributes:
        approved: whether it may be; by: who says so; note: a remark for the record.
    """

    approved: bool
    by: str
    note: str = ""


def approve(state: Any = None, *, by: str, note: str = "", item: Any = None) -> Any:
    """Say yes, and return what `saga_run` goes on with.

    Args:
        state: a `RunState` that waits; without one the answer is about a tool's failure.
        by: who says so; must not be blank.
        note: a remark for the record.
        item: which of the state's interruptions is meant; all of them when not given.

    Raises:
        ConfigurationError: nobody is named, or nothing waits.
    """
    return _answered(state, Answer(approved=True, by=by, note=note), item)


def deny(state: Any = None, *, by: str, note: str = "", item: Any = None) -> Any:
    """Say no, and return what `saga_run` goes on with; the model is told the note.

    Args:
        state: a `RunState` that waits; without one the answer is about a tool's failure.
        by: who says so; must not be blank.
        note: why.
        item: which of the state's interruptions is meant; all of them when not given.

    Raises:
        ConfigurationError: nobody is named, or nothing waits.
    """
    return _answered(state, Answer(approved=False, by=by, note=note), item)


def _answered(state: Any, answer: Answer, item: Any) -> Any:
    if not answer.by.strip():
        raise ConfigurationError("The answer does not say who gives it.", fix='Give by="…".')
    if state is None:
        return answer
    if not isinstance(state, RunState):
        raise ConfigurationError(
            f"{type(state).__name__} is no state of a run.", fix="Give it result.to_state()."
        )
    items = state.get_interruptions() if item is None else [item]
    if not items:
        raise ConfigurationError("The state waits for nothing.")
    for one in items:
        if answer.approved:
            state.approve(one)
        else:
            state.reject(one, rejection_message=answer.note or f"{answer.by} said no.")
        noted(state)[call_id_of(one)] = answer
    return state


def noted(state: Any) -> dict[str, Answer]:
    """Return the answers that a state was given, by call id."""
    found: dict[str, Answer] = state.__dict__.setdefault(_NOTED, {})
    return found


def call_id_of(item: Any) -> str:
    """Return the id of the call that an interruption is about."""
    raw = item.raw_item
    given = raw.get("call_id") or raw.get("id") if isinstance(raw, Mapping) else None
    return str(given or getattr(raw, "call_id", None) or getattr(raw, "id", ""))


def waiting_for(items: list[Any]) -> list[str]:
    """Return what interruptions wait for: the ids of their calls."""
    return sorted(call_id_of(item) for item in items)


class RunAnswers(Answers):
    """The answers of a run, those of its earlier parts included.

    Args:
        awaits: what the suspended saga kept.
        given: the answers that the run was resumed with, by call id; under an empty id the one that
            is about a tool's failure.

    Attributes:
        plain: the answers as plain data, by request id.
        open: the questions that nobody has answered, by request id.
        steps: the ids of the steps that stood when the saga was suspended.
        denied: a no about a tool's failure; None if there is none.
    """

    __slots__ = ("denied", "open", "plain", "steps")

    def __init__(self, awaits: object = None, given: Mapping[str, Answer] | None = None) -> None:
        super().__init__()
        kept = awaits if isinstance(awaits, Mapping) else {}
        self.plain: dict[str, list[Any]] = dict(kept.get("answers") or {})
        self.steps = frozenset(map(str, kept.get("steps") or ()))
        self.denied: Answer | None = None
        self.open: dict[str, dict[str, Any]] = dict(kept.get("questions") or {})
        for request, question in tuple(self.open.items()):
            answer = (given or {}).get(str(question.get("call", "")))
            if answer is not None:
                del self.open[request]
                self.plain.setdefault(request, list(answer))
                if not question.get("call") and not answer.approved:
                    self.denied = answer
        for request, answer in self._all():
            self.add(request, Approval(answer.approved, answer.by, answer.note))

    def _all(self) -> Iterator[tuple[str, Answer]]:
        for request, plain in self.plain.items():
            yield request, Answer(bool(plain[0]), str(plain[1]), str(plain[2]))
