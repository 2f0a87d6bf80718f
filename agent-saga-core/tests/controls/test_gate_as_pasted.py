"""The gate example of the documents runs as it is written there: limits, escalation, a webhook."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent_saga import (
    AgentKit,
    ApprovalGateway,
    ApprovalPolicy,
    BudgetLimit,
    Compensation,
    EscalationLevel,
    FileApprovalStore,
    FileWAL,
    LimitExceeded,
    PreFlightGate,
    RateLimit,
    RefusedError,
    WebhookNotifier,
    by_arg,
    by_tool,
    set_default_wal,
)


@pytest.fixture
def desk():
    """People behind a webhook: they approve what they are told of."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            here.told.append(body["request"])
            here.answer(body["request"]["id"])

        def log_message(self, *args):
            pass

    here = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here.told = []
    here.answer = lambda request: None
    thread = threading.Thread(target=here.serve_forever)
    thread.start()
    yield here
    here.shutdown()
    thread.join()
    here.server_close()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_gate_as_pasted(desk, tmp_path, anyio_backend):
    url = f"http://127.0.0.1:{desk.server_port}/"
    wal = FileWAL(str(tmp_path / "log"))
    set_default_wal(wal)
    try:
        gate = PreFlightGate(
            limits=[
                BudgetLimit("daily-spend", arg="amount", max_total=50_000, window=86_400),
                BudgetLimit(
                    "per-customer",
                    arg="amount",
                    max_total=1_000,
                    window=86_400,
                    scope=by_arg("customer_id"),
                ),
                RateLimit("velocity", max_calls=20, window=60, scope=by_tool),
                BudgetLimit(
                    "wire-ceiling",
                    arg="amount",
                    max_total=1_500,
                    window=86_400,
                    escalate_to_human=True,
                ),
            ],
            approval_provider=ApprovalGateway(
                store=FileApprovalStore(),
                notifier=WebhookNotifier(url),
                wal=wal,
                policy=ApprovalPolicy(
                    timeout=900,
                    levels=(
                        EscalationLevel(targets=("@oncall",)),
                        EscalationLevel(targets=("@head-of-risk",), after_seconds=300),
                    ),
                ),
            ),
        )
        await _charged(gate, wal, desk)
    finally:
        set_default_wal(None)
        wal.close()


async def _charged(gate, wal, desk):
    done = []
    kit = AgentKit("shop", gate=gate, wal=wal)
    store = FileApprovalStore()
    desk.answer = lambda request: store.approve(request, approver="ann")

    async def charge(customer_id: str, amount: int) -> dict:
        done.append((customer_id, amount))
        return {"id": "c"}

    tool = kit.safe_tool(charge, "COMPENSABLE", lambda _: Compensation.none("only counted"))
    pings = []

    async def ping() -> None:
        pings.append(1)

    ping = kit.safe_tool(ping, "REVERSIBLE")
    async with kit.transaction():
        await tool(customer_id="a", amount=900)
        with pytest.raises(RefusedError) as caught:
            await tool(customer_id="a", amount=101)
        assert caught.value.rule == "per-customer"
        await tool(customer_id="b", amount=600)  # 1,500 in all: as much as nobody is asked about
        await tool(customer_id="c", amount=200)  # above the ceiling: a human is asked
        for _ in range(20):
            await ping()
        with pytest.raises(LimitExceeded, match="velocity"):
            await ping()
    assert pings == [1] * 20
    assert done == [("a", 900), ("b", 600), ("c", 200)]
    (told,) = desk.told
    assert (told["rule"], told["targets"]) == ("wire-ceiling", ["@oncall"])
    assert told["arguments"] == {"amount": 200, "customer_id": "c"}
