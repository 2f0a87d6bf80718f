"""A shop whose gate asks by letting runs wait."""

from __future__ import annotations

import asyncio
import json

from autogen_core.tools import FunctionTool
from scripted import call

from agent_saga import AgentKit, PreFlightGate
from agent_saga_autogen import (
    AutoGenApprovals,
    Waiting,
    ask_human,
    compensable,
    irreversible,
    last_report,
    read_only,
    saga_agent,
    saga_run,
)
from agent_saga_testing.integration.driver import QUICK

PAY = [call("pay", "p1", item="money")]
DOWN = OSError("the model is down")


class Desk:
    """A shop whose gate asks by letting runs wait."""

    def __init__(self, shop):
        self.shop, self.world = shop, shop.world
        gate = PreFlightGate(approval_provider=AutoGenApprovals())
        self.kit = AgentKit("desk", wal=str(shop.folder / "log"), gate=gate, settings=QUICK)

        def pay(item: str) -> dict:
            """Pay."""
            return shop.world.do(item)

        def ask(question: str) -> str:
            """Ask."""
            return ask_human(question)

        def order(item: str) -> dict:
            """Order what a human names."""
            return shop.world.do(ask_human(f"which {item}?"))

        self.tools = [FunctionTool(f, description=f.__doc__) for f in (pay, ask, order)]
        self.declared = {
            **shop.declared,
            "pay": irreversible(),
            "ask": read_only(),
            "order": compensable(shop.undo, asks_first=True),
        }

    def bare(self, *script, name="A", tools=(), **options):
        given = [self.shop.book, self.shop.fails, *self.tools, *tools]
        return self.shop.agent(*script, name=name, tools=given, **options)

    def agent(self, *script, **options):
        return saga_agent(self.bare(*script, **options), self.kit, tools=self.declared)

    def run(self, agent, task=None, **options):
        async def case():
            try:
                return await saga_run(agent, task, kit=self.kit, **options)
            finally:
                self.report = last_report()

        return asyncio.run(case())

    def waiting(self, agent, **options):
        found = self.run(agent, "go on", **options)
        assert isinstance(found, Waiting)
        assert self.report.outcome == "SUSPENDED"
        return found

    def goes_on(self, agent, waiting, resume, **options):
        state = json.loads(json.dumps(waiting.state))
        return self.run(agent, state=state, resume=resume, **options)


def last(result):
    return result.messages[-1].content


def book(item, id=""):  # noqa: A002
    return call("book", id, item=item)
