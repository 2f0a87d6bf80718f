"""The agent that dies: charges three customers, and is killed where it is told to.

The world is a SQLite file that the tools write and that the test reads by itself; every call of an
effect and of an inverse is a row. CHAOS_POINT names where the process is killed.
"""

from __future__ import annotations

import os
import signal
import sqlite3

from agent_saga import AgentKit, Applied, NotApplied

WORLD = os.environ["CHAOS_WORLD"]
POINT = os.environ.get("CHAOS_POINT", "")

kit = AgentKit("chaos")


def world() -> sqlite3.Connection:
    """Open the world."""
    return sqlite3.connect(WORLD, timeout=30, isolation_level=None)


def happen(what: str, customer: str, key: str) -> None:
    """Apply an effect or an inverse; the provider applies one key once."""
    connection = world()
    seen = connection.execute(
        "select count(*) from calls where what = ? and key = ? and applied", (what, key)
    ).fetchone()[0]
    connection.execute("insert into calls values (?, ?, ?, ?)", (what, customer, key, not seen))
    connection.close()


def die_if(point: str) -> None:
    """Be killed here, if this is the point that the test chose."""
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


@kit.tool("COMPENSABLE")
def charge(customer: str, *, idempotency_key: str) -> dict[str, str]:
    """Charge a customer."""
    die_if(f"before the effect of {customer}")
    happen("charge", customer, idempotency_key)
    die_if(f"after the effect of {customer}")
    return {"customer": customer, "key": idempotency_key}


@charge.undo(idempotent=True)
def refund(result: dict[str, str], *, idempotency_key: str) -> None:
    """Refund a charge."""
    die_if(f"before the inverse of {result['customer']}")
    happen("refund", result["customer"], idempotency_key)
    die_if(f"after the inverse of {result['customer']}")


@charge.probe
def find(args: dict[str, str], *, idempotency_key: str) -> Applied | NotApplied:
    """Say whether a charge happened."""
    found = (
        world()
        .execute(
            "select count(*) from calls where what = 'charge' and key = ? and applied",
            (idempotency_key,),
        )
        .fetchone()[0]
    )
    if found:
        return Applied({"customer": args["customer"], "key": idempotency_key})
    return NotApplied("there is no such charge")


def run() -> None:
    """Charge three customers; fail at the end if an undo is to be interrupted."""
    with kit.transaction():
        for customer in ("ann", "bob", "cid"):
            charge(customer)
            die_if(f"between {customer} and the next")
        if "inverse" in POINT:
            raise RuntimeError("the agent's plan failed")
    die_if("after the commit")


if __name__ == "__main__":
    run()
