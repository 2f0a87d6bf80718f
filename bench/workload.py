"""What the benchmarks run: one kit with a full gate, and its tools.

Rules of this part:

- The full gate is the log's kill switch, a circuit breaker, three limits that count in memory, and
  two rules; none of them refuses anything here.
- The tools do nothing, so that what is measured is the engine's own cost.
- Arguments, result and inverse of one call are 225 bytes of JSON together; the record that stands
  for the speed of this machine is 366 bytes of `json.dumps`.
- The log lies in a folder of its own on a real disk and is removed at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agent_saga import (
    AgentKit,
    BudgetLimit,
    CircuitBreaker,
    FileWAL,
    MemoryLimitStore,
    PreFlightGate,
    RateLimit,
    Rule,
    SagaAborted,
    SagaTool,
    Settings,
    arg_exceeds,
    by_arg,
    by_tool,
    compensator,
    set_breaker,
    set_limit_store,
    tool_is,
)
from agent_saga.wal.os_port import OsPort

ARGUMENTS: Final[dict[str, Any]] = {
    "customer": "cus_9f27c1d0",
    "amount": 4200,
    "currency": "eur",
    "order": "order-000017",
    "note": "the first half of what was asked",
}
RESULT: Final[dict[str, Any]] = {
    "id": "ch_3f8e1c0a",
    "amount": 4200,
    "status": "succeeded",
    "fee": 12,
}
INVERSE: Final[dict[str, Any]] = {"charge": RESULT["id"], "amount": RESULT["amount"]}
PAYLOAD: Final = sum(
    len(json.dumps(part, separators=(",", ":"))) for part in (ARGUMENTS, RESULT, INVERSE)
)

RECORD: Final[dict[str, Any]] = {
    "q": 1041,
    "t": 1764435612000123,
    "e": "STEP_COMMITTED",
    "s": "Zk3vN0aPq8Wd2LxT",
    "p": 1,
    "k": "b1Qv7sXn0Rk5Lm2PzT9aYw",
    "g": 0,
    "d": {"arguments": ARGUMENTS, "result": RESULT},
}


@compensator("bench.refund")
async def refund(charge: str, amount: int) -> None:
    """Take a charge back, asynchronously."""


@compensator("bench.give_back")
def give_back(charge: str, amount: int) -> None:
    """Take a charge back."""


async def look_async(customer: str, amount: int, currency: str, order: str, note: str) -> Any:
    """Read something, asynchronously."""
    del customer, amount, currency, order, note
    return RESULT


def look_sync(customer: str, amount: int, currency: str, order: str, note: str) -> Any:
    """Read something."""
    del customer, amount, currency, order, note
    return RESULT


def gate() -> PreFlightGate:
    """Return the full gate; every kit of the process then has the same breaker and counts."""
    set_breaker(CircuitBreaker())
    set_limit_store(MemoryLimitStore())
    return PreFlightGate(
        [
            Rule("large", arg_exceeds("amount", 100_000), then="ask"),
            Rule("no wires", tool_is("wire.*"), then="refuse"),
        ],
        limits=[
            BudgetLimit("spend", "amount", 10**18, 86_400),
            BudgetLimit("customer", "amount", 10**18, 86_400, by_arg("customer")),
            RateLimit("velocity", 10**12, 60, by_tool),
        ],
    )


def check_clean(aborted: SagaAborted) -> None:
    """Refuse to measure an unwinding that did not undo everything."""
    report = aborted.report
    if report is None or not report.clean:
        raise aborted


class Work:
    """A kit on a log, and its tools.

    Attributes:
        folder: where the log and the files of the floors lie.
        kit, wal: the kit and its log.
        look, look_sync: REVERSIBLE tools.
        charge, charge_sync, charge_durable: COMPENSABLE ones with an inverse by name.
    """

    def __init__(self, folder: str, port: OsPort | None = None, name: str = "log") -> None:
        self.folder = folder
        self.wal = FileWAL(Path(folder, name), port)
        settings = Settings(outside="run")
        self.kit = kit = AgentKit("bench", gate=gate(), wal=self.wal, settings=settings)
        inverse = refund.using(charge="$.id", amount="$.amount")
        inverse_sync = give_back.using(charge="$.id", amount="$.amount")
        self.look: SagaTool[..., Any] = kit.safe_tool(look_async, "REVERSIBLE", name="look")
        self.look_sync: SagaTool[..., Any] = kit.safe_tool(look_sync, "REVERSIBLE", name="see")
        self.charge: SagaTool[..., Any] = kit.safe_tool(look_async, compensate=inverse, name="pay")
        self.charge_sync: SagaTool[..., Any] = kit.safe_tool(
            look_sync, compensate=inverse_sync, name="charge"
        )
        self.charge_durable: SagaTool[..., Any] = kit.safe_tool(
            look_async, compensate=inverse, name="pay durably", commit="durable"
        )


@contextlib.contextmanager
def place() -> Iterator[str]:
    """Make a folder for logs, in `AGENT_SAGA_BENCH_DIR` or where temporary files lie."""
    folder = tempfile.mkdtemp(
        prefix="agent-saga-bench-", dir=os.environ.get("AGENT_SAGA_BENCH_DIR")
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def work(port: OsPort | None = None) -> Iterator[Work]:
    """Make a kit on a log of its own."""
    with place() as folder:
        running = Work(folder, port)
        try:
            yield running
        finally:
            running.wal.close()
