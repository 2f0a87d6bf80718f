"""A share of a standing grant answers one question of one call, for the arguments it was asked for.

It is given back however the asking ends, unless the call begins.
"""

from __future__ import annotations

import asyncio

import pytest

from agent_saga import (
    AgentKit,
    ApprovalDenied,
    ApprovalGateway,
    ApprovalPolicy,
    ConfigurationError,
    PreFlightGate,
    RefusedError,
    Rule,
    Settings,
)
from agent_saga.controls.approvals import ApprovalRequest
from agent_saga.controls.humans.store import ApprovalStore
from agent_saga.engine.asking import asked_about_failure
from agent_saga.engine.drive_sync import SyncDriver
from agent_saga.engine.endings import step_of
from agent_saga.state.memory import MemoryStateStore

FAST = Settings(settle=2, settle_after=0.2, inverse_delay=0.0, cancel_grace=0.2)


class Slow(MemoryStateStore):
    """Is asked to wait after each transaction, as an answer of a disk does."""

    def __init__(self):
        super().__init__()
        self.answering = asyncio.Event()
        self.slow = False

    async def async_transact(self, *args, **options):
        answer = await super().async_transact(*args, **options)
        if self.slow:
            self.slow = False
            self.answering.set()
            await asyncio.sleep(60)
        return answer


@pytest.fixture
def state():
    return Slow()


@pytest.fixture
def store(state):
    return ApprovalStore(state)


@pytest.fixture
def kit_of(store, wal):
    def make(*rules):
        gateway = ApprovalGateway(store, policy=ApprovalPolicy(timeout=0.1))
        return AgentKit("asking", wal=wal, gate=PreFlightGate(rules, gateway), settings=FAST)

    return make


def shares(store):
    return [len(grant["shares"]) for grant in store.grants()]


@pytest.mark.guarantee("APPROVE-10")
def test_a_share_for_one_rule_answers_no_other_rule(kit_of, store, world):
    kit = kit_of(Rule("large", lambda call: True, "ask"))
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    store.grant("wire", approver="ann", seconds=60, arg="amount", up_to=10)
    with kit.transaction(), pytest.raises(ApprovalDenied) as refused:
        wire(5)
    assert refused.value.rule == "large"
    assert world.amounts == []
    assert shares(store) == [0]
    store.grant("wire", approver="ann", seconds=60, rule="large")
    with kit.transaction():
        wire(5)
    assert world.amounts == [5]
    assert shares(store) == [1, 1]


def request(amount, mac, requesters=("asking",)):
    """Return what the same step of a saga asks, in whichever process."""
    about = ("saga", "order-17", 0, "wire", "irreversible", "nothing can undo it")
    return ApprovalRequest(*about, {"amount": amount}, mac, requesters)


@pytest.mark.guarantee("APPROVE-10")
def test_a_share_that_a_dead_process_left_covers_no_other_amount(store):
    gateway = ApprovalGateway(store, policy=ApprovalPolicy(timeout=0.1))
    store.grant("wire", approver="ann", seconds=60, arg="amount", up_to=100)
    assert asyncio.run(gateway.ask(request(5, b"five"))).approved
    assert asyncio.run(gateway.ask(request(5, b"five"))).approved
    assert shares(store) == [1]
    assert not asyncio.run(gateway.ask(request(1_000_000, b"million"))).approved
    assert shares(store) == [1]


@pytest.mark.guarantee("APPROVE-10")
def test_a_share_counts_no_more_for_who_has_granted_it(store):
    gateway = ApprovalGateway(store, policy=ApprovalPolicy(timeout=0.1))
    store.grant("wire", approver="ann", seconds=60)
    assert asyncio.run(gateway.ask(request(5, b"five"))).approved
    assert not asyncio.run(gateway.ask(request(5, b"five", ("asking", "ann")))).approved


@pytest.mark.guarantee("APPROVE-10")
def test_a_share_of_a_call_does_not_let_the_run_go_on_after_its_failure(kit_of, store):
    kit = kit_of()

    def wire(amount):
        raise OSError("lost")

    tool = kit.safe_tool(wire, "IRREVERSIBLE", name="wire")
    store.grant("wire", approver="ann", seconds=60)
    with kit.transaction(on_unsettled="warn"):
        with pytest.raises(OSError, match="lost") as failed:
            tool(5)
        step = step_of(failed.value)
        cut = SyncDriver(step.saga.engine).drive(asked_about_failure(step, "it failed"))
    assert isinstance(cut, ApprovalDenied)
    assert cut.rule == "on_tool_failure"


@pytest.mark.guarantee("APPROVE-10")
def test_no_rule_has_the_name_of_the_question_after_a_failure():
    with pytest.raises(ConfigurationError, match="on_tool_failure"):
        PreFlightGate([Rule("on_tool_failure", lambda call: True, "ask")])


@pytest.mark.guarantee("APPROVE-10")
def test_a_share_is_given_back_if_the_asking_is_cancelled_after_it_was_stored(
    kit_of, store, state, world
):
    kit = kit_of()
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    store.grant("wire", approver="ann", seconds=60, uses=1)
    state.slow = True

    async def run():
        async with kit.transaction():
            await wire(5)

    async def cancelled():
        task = asyncio.create_task(run())
        await state.answering.wait()
        assert shares(store) == [1]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert shares(store) == [0]
    assert world.amounts == []
    asyncio.run(run())
    assert world.amounts == [5]


@pytest.mark.guarantee("APPROVE-10")
def test_a_share_is_given_back_if_the_arguments_changed_while_it_was_asked_for(
    kit_of, store, world, monkeypatch
):
    order = {"amount": 5}
    kit = kit_of()

    def pay(order):
        world.amounts.append(order["amount"])

    asking = ApprovalGateway.ask

    async def changing(self, request):
        order["amount"] = 1_000_000
        return await asking(self, request)

    monkeypatch.setattr(ApprovalGateway, "ask", changing)
    tool = kit.safe_tool(pay, "IRREVERSIBLE", name="pay")
    store.grant("pay", approver="ann", seconds=60, uses=1)
    with kit.transaction(), pytest.raises(RefusedError, match="changed"):
        tool(order)
    assert world.amounts == []
    assert shares(store) == [0]
