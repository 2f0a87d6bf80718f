"""The agent that dies: charges three customers, and is killed where a test tells it to be.

The provider knows idempotency keys; its world is a database file that the test reads by itself.
"""

from __future__ import annotations

from agent_saga import AgentKit, Applied, NotApplied, SagaAborted, Settings
from agent_saga_testing.crash import Bench, bench, point

CUSTOMERS = ("ann", "bob", "cid")

kit = AgentKit("chaos", settings=Settings(settle_after=0.0, inverse_delay=0.0))


@kit.tool("COMPENSABLE")
def charge(customer: str, *, idempotency_key: str) -> dict[str, object]:
    """Charge a customer."""
    point(f"before the effect of {customer}")
    charged = bench().world.do(customer, key=idempotency_key)
    point(f"after the effect of {customer}")
    return charged


@charge.undo(idempotent=True)
def refund(result: dict[str, object], *, idempotency_key: str) -> None:
    """Refund a charge."""
    point(f"before the inverse of {result['name']}")
    bench().world.undo(int(str(result["id"])), key=idempotency_key)
    point(f"after the inverse of {result['name']}")


@charge.probe
def find(*, idempotency_key: str) -> Applied | NotApplied:
    """Say whether a charge happened."""
    found = bench().world.find(idempotency_key)
    return Applied(found) if found else NotApplied("there is no such charge")


def run(here: Bench) -> None:
    """Charge three customers; fail at the end if that is asked for."""
    try:
        with kit.transaction():
            for customer in CUSTOMERS:
                charge(customer)
                point(f"between {customer} and the next")
            if here.argument == "fail":
                raise RuntimeError("the agent's plan failed")
    except SagaAborted as aborted:
        said = here.log.with_name("said")
        said.write_text(f"{aborted}\n{type(aborted.cause).__name__}: {aborted.cause}", "utf-8")
        raise
    point("after the commit")
