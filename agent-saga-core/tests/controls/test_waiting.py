"""Questions that wait without a thread: the saga is suspended, and resumed with the answer."""

from __future__ import annotations

import asyncio

import pytest

from agent_saga import (
    AgentKit,
    Approval,
    ApprovalDenied,
    ApprovalPending,
    PreFlightGate,
    SagaAborted,
    SagaSuspended,
    Settings,
)
from agent_saga.controls.waiting import Answers, WaitingApprovals, answering


@pytest.fixture
def kit(tmp_path):
    gate = PreFlightGate(approval_provider=WaitingApprovals())
    settings = Settings(settle_after=0.2, inverse_delay=0.0)
    return AgentKit("waits", wal=str(tmp_path / "log"), gate=gate, settings=settings)


@pytest.fixture
def wire(kit, world):
    return kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")


def asked(kit, wire, amount=5):
    with (
        pytest.raises(SagaSuspended) as suspended,
        answering(Answers()),
        kit.transaction(saga_id="order", resume=True),
    ):
        wire(amount)
    return suspended.value.__cause__.question


def test_a_question_suspends_and_its_answer_lets_the_call_run_once(kit, wire, world):
    question = asked(kit, wire)
    assert world.amounts == []
    assert (question["tool"], question["arguments"]) == ("wire", {"amount": 5, "to": "acme"})
    answers = Answers({question["id"]: Approval(True, "ann")})
    for _ in range(2):
        with answering(answers), kit.transaction(saga_id="order", resume=True):
            assert wire(5)["amount"] == 5
    assert world.amounts == [5]


def test_an_answer_counts_for_no_other_arguments(kit, wire, world):
    question = asked(kit, wire)
    answers = Answers({question["id"]: Approval(True, "ann")})
    with (
        pytest.raises(SagaSuspended),
        answering(answers),
        kit.transaction(saga_id="order", resume=True),
    ):
        wire(5_000_000)
    assert world.amounts == []


@pytest.mark.parametrize("answer", [Approval(False, "ann", "no"), Approval(True, " ")])
def test_a_no_is_a_refusal(kit, wire, world, answer):
    question = asked(kit, wire)
    answers = Answers({question["id"]: answer})
    answers.add(question["id"], Approval(True, "bob"))
    with (
        answering(answers),
        kit.transaction(saga_id="order", resume=True),
        pytest.raises(ApprovalDenied),
    ):
        wire(5)
    assert world.amounts == []


def test_where_a_run_cannot_wait_nobody_is_asked(kit, wire, world):
    with pytest.raises(SagaAborted, match="cannot wait") as failed, kit.transaction():
        wire(5)
    assert isinstance(failed.value.cause, ApprovalDenied)
    assert world.amounts == []


def test_on_a_loop_a_question_suspends_too(kit, wire, world):
    async def case():
        with answering(Answers()):
            async with kit.transaction(saga_id="order", resume=True):
                with pytest.raises(ApprovalPending):
                    await wire(5)
                raise RuntimeError("the program went on without the answer")

    with pytest.raises(SagaAborted, match="went on without"):
        asyncio.run(case())
    assert world.amounts == []
