"""The front door works exactly as its users' documents write it: every line here can be pasted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agent_saga
from agent_saga import (
    ActionSemantics,
    AgentKit,
    Applied,
    CannotTell,
    Compensation,
    NotApplied,
    Observation,
    RetryPolicy,
    RollbackReport,
    SagaAborted,
    compensator,
    current_saga,
    reconciler,
    saga,
    saga_scope,
    set_default_wal,
    tool,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def default_log(tmp_path: Path) -> Any:
    set_default_wal(str(tmp_path / "path" / "to" / "wal.jsonl"))
    yield
    set_default_wal(None)


@pytest.fixture
def world() -> list[Any]:
    return []


async def test_agent_kit_as_pasted(world: list[Any]) -> None:
    async def stripe_charge(amount: int) -> dict[str, Any]:
        world.append(("charge", amount))
        return {"id": "ch_1"}

    @compensator("surface.refund")
    async def refund(id: str) -> None:  # noqa: A002 - as the documents write it
        world.append(("refund", id))

    kit = AgentKit(name="my-agent")
    charge = kit.safe_tool(
        stripe_charge,
        semantics="COMPENSABLE",
        compensate=lambda r: {"handler": "surface.refund", "kwargs": {"id": r["id"]}},
    )
    async with kit.transaction():
        await charge(amount=4200)
    assert world == [("charge", 4200)]

    with pytest.raises(SagaAborted) as caught:
        async with kit.transaction():
            await charge(amount=4200)
            raise RuntimeError("the plan failed")
    assert world == [("charge", 4200), ("charge", 4200), ("refund", "ch_1")]
    assert isinstance(caught.value.report, RollbackReport)
    assert caught.value.report.clean
    assert isinstance(caught.value.cause, RuntimeError)
    assert caught.value.__cause__ is caught.value.cause

    assert kit.guarantees()["not_claimed"]
    status = kit.status()
    assert status.ready
    assert not status.blockers
    assert isinstance(status.warnings, list)


def test_templates_are_checked_when_wrapped(world: list[Any]) -> None:
    @compensator("surface.template.refund")
    def refund(id: str, *, idempotency_key: str) -> None:  # noqa: A002
        world.append(("refund", id, len(idempotency_key)))

    kit = AgentKit(name="my-agent")

    def stripe_charge(amount: int) -> dict[str, Any]:
        world.append(("charge", amount))
        return {"id": "ch_1"}

    charge = kit.safe_tool(stripe_charge, compensate=refund.using(id="$.id"))
    as_dict = kit.safe_tool(
        stripe_charge,
        compensate={"handler": "surface.template.refund", "kwargs": {"id": "$.id"}},
    )
    for one in (charge, as_dict):
        with pytest.raises(SagaAborted), kit.transaction():
            one(amount=1)
            raise RuntimeError
    assert world == [("charge", 1), ("refund", "ch_1", 64)] * 2
    with pytest.raises(agent_saga.ConfigurationError):
        refund.using(nonsense="$.id")
    with pytest.raises(agent_saga.UnknownHandler):
        kit.safe_tool(stripe_charge, compensate={"handler": "nobody", "kwargs": {}})


async def test_decorators_as_pasted(world: list[Any]) -> None:
    @compensator("surface.stripe.refund")
    async def refund(charge_id: str) -> None:
        world.append(("refund", charge_id))

    @tool(
        semantics=ActionSemantics.COMPENSABLE,
        compensate=lambda result: Compensation(
            fn=refund, handler="surface.stripe.refund", kwargs={"charge_id": result["id"]}
        ),
    )
    async def charge_customer(customer_id: str, amount: int) -> dict[str, Any]:
        world.append(("charge", customer_id, amount))
        return {"id": "ch_1"}

    @saga
    async def agent_run() -> None:
        await charge_customer(customer_id="cus_1", amount=4200)

    await agent_run()
    assert world == [("charge", "cus_1", 4200)]

    @saga(reraise=True)
    async def failing_run() -> None:
        await charge_customer(customer_id="cus_2", amount=1)
        raise LookupError("gone")

    with pytest.raises(LookupError) as caught:
        await failing_run()
    assert world[-1] == ("refund", "ch_1")
    assert caught.value.saga_report.clean  # type: ignore[attr-defined]


async def test_scopes_as_pasted(world: list[Any]) -> None:
    async def terminate(instance: str) -> None:
        world.append(("terminate", instance))

    with pytest.raises(SagaAborted):
        async with saga_scope(name="provision") as running:
            box = await running.execute(
                tool="aws.run_instances",
                semantics=ActionSemantics.COMPENSABLE,
                forward=lambda: world.append("run") or {"id": "i-1"},  # type: ignore[func-returns-value]
                compensate=lambda r: Compensation(
                    fn=terminate,
                    handler="surface.aws.terminate_instance",
                    kwargs={"instance": r["id"]},
                ),
            )
            assert box == {"id": "i-1"}
            inside = current_saga()
            assert inside is not None
            assert inside.id == running.id
            raise RuntimeError("no")
    assert world == ["run", ("terminate", "i-1")]
    assert current_saga() is None


async def test_the_short_form_as_pasted(world: list[Any]) -> None:
    kit = AgentKit(name="my-agent")

    @kit.tool("COMPENSABLE")
    async def charge(customer_id: str, amount: int) -> dict[str, Any]:
        world.append(("charge", customer_id, amount))
        return {"id": "ch_1"}

    @charge.undo
    async def refund(result: dict[str, Any], *, idempotency_key: str) -> None:
        world.append(("refund", result["id"], len(idempotency_key)))

    @charge.probe
    async def find(args: dict[str, Any], *, idempotency_key: str) -> Any:
        return Applied({"id": "ch_1"}) if args["amount"] else CannotTell() or NotApplied()

    @charge.observe
    async def check(result: dict[str, Any]) -> Observation:
        return Observation(reversed_=True, exists=True, detail=result["id"], amount=1)

    with pytest.raises(SagaAborted):
        async with kit.transaction():
            first = await charge.keyed("order-17")("cus_1", amount=1)
            assert await charge.keyed("order-17")("cus_1", amount=1) == first
            assert await charge.acall("cus_2", 2)
            raise RuntimeError("no")
    assert world == [
        ("charge", "cus_1", 1),
        ("charge", "cus_2", 2),
        ("refund", "ch_1", 64),
        ("refund", "ch_1", 64),
    ]


def test_a_synchronous_boundary_and_plain_calls(world: list[Any]) -> None:
    kit = AgentKit("plain")

    @kit.tool("COMPENSABLE")
    def write(text: str) -> str:
        world.append(text)
        return text

    @write.undo(keep=())
    def erase(result: dict[str, Any]) -> None:
        world.pop()

    with kit.transaction():
        write("a")
        write.call("b")
    assert world == ["a", "b"]
    with pytest.raises(SagaAborted), kit.transaction(name="second"):
        write("c")
        raise RuntimeError
    assert world == ["a", "b"]


def test_observers_and_retries_are_named_as_written(world: list[Any]) -> None:
    @reconciler("surface.plain")
    def observe(id: str) -> Observation:  # noqa: A002
        return Observation(reversed_=None)

    policy = RetryPolicy(
        max_retries=2,
        backoff_type="linear",
        base_delay=0.0,
        max_delay=0.0,
        retry_on=(OSError, NotApplied),
        exclude_exceptions=(FileNotFoundError,),
    )
    kit = AgentKit("retrying")

    @kit.tool("COMPENSABLE", retry=policy, fallback_action=lambda: world.append("fallback"))
    def flaky() -> None:
        world.append("tried")
        raise NotApplied("it said no")

    with kit.transaction():
        flaky()
    assert world == ["tried", "tried", "tried", "fallback"]
    assert observe("x").reversed_ is None
