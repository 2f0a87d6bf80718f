"""Calls as users write them, for a type checker; this file is never run.

A decorator keeps the signature of what it decorates: a wrong argument to a tool is found where it
is written, not in the middle of a run.
"""

from __future__ import annotations

from typing import assert_type

from agent_saga import (
    ActionSemantics,
    AgentKit,
    Compensation,
    RollbackReport,
    SagaAborted,
    SagaHandle,
    SagaTool,
    current_saga,
    saga,
    saga_scope,
    tool,
)

kit = AgentKit(name="my-agent")


@kit.tool("COMPENSABLE")
def charge(customer_id: str, amount: int) -> dict[str, str]:
    return {"id": f"{customer_id}-{amount}"}


@charge.undo
def refund(result: dict[str, str], *, idempotency_key: str) -> None:
    assert_type(result["id"] + idempotency_key, str)


@tool(ActionSemantics.REVERSIBLE)
async def look_up(name: str) -> int:
    return len(name)


@saga
async def run(order: str) -> int:
    charge("cus_1", 4200)
    return await look_up(order)


@saga(name="named")
def run_by_name(order: str) -> str:
    return order


def a_tool_keeps_its_signature() -> None:
    assert_type(charge("cus_1", amount=4200), dict[str, str])
    charge("cus_1")  # type: ignore[call-arg]
    charge("cus_1", amount="much")  # type: ignore[arg-type]


async def an_async_tool_keeps_its_signature() -> None:
    assert_type(await look_up("order"), int)
    assert_type(await run("order"), int)
    await look_up(1)  # type: ignore[arg-type]


def a_wrapped_function_keeps_its_signature() -> None:
    def pay(amount: int) -> str:
        return str(amount)

    safe = kit.safe_tool(pay, "COMPENSABLE", lambda result: Compensation.none("a test"))
    assert isinstance(safe, SagaTool)
    assert_type(safe(1), str)
    assert_type(safe(amount=1), str)
    assert_type(run_by_name("order"), str)


def a_boundary_lets_exceptions_through() -> int:
    # A checker that believed the boundary to swallow exceptions would miss a return here.
    with kit.transaction() as boundary:
        assert_type(boundary, SagaHandle)
        return 1


async def an_async_boundary_lets_exceptions_through() -> int:
    async with saga_scope(name="named") as boundary:
        assert_type(boundary, SagaHandle)
        return 1


def an_error_carries_its_report(error: SagaAborted) -> RollbackReport:
    assert_type(current_saga(), SagaHandle | None)
    return error.report
