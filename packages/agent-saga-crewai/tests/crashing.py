"""A flow that dies where it is told to; run by its test in processes of their own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, call  # noqa: I001 - first: it sets the framework up

from crewai import Agent, Crew, Task
from crewai.flow import human_feedback
from crewai.flow.async_feedback import HumanFeedbackPending
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence
from pydantic import BaseModel

from agent_saga import AgentKit, compensator
from agent_saga_crewai import ask_human, saga_run_sync, saga_tool
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.world import World


class State(BaseModel):
    id: str = ""


class Later:
    """Lets a human answer later."""

    def request_feedback(self, context, flow):
        raise HumanFeedbackPending(context=context)


@compensator("agent_saga_crewai.tests.cancel")
def cancel(world, effect, *, idempotency_key):
    """Undo an effect."""
    World(world).undo(effect, key=idempotency_key)


class Trips:
    """The flow, over a folder.

    Args:
        folder: where the log, the world and the flow's state lie.
        dies_at: the item before whose booking the process dies; empty for none.
    """

    def __init__(self, folder, dies_at=""):
        self.folder = folder
        self.world = World(folder / "world.sqlite", honours_keys=False)
        self.kit = AgentKit("trips", wal=str(folder / "log"), settings=QUICK)
        self.kept = SQLiteFlowPersistence(str(folder / "flows.sqlite"))
        self.dies_at = dies_at
        world = str(self.world.path)

        @saga_tool(compensate=cancel.using(world=world, effect="$.id"), kit=self.kit)
        def book(item: str) -> dict:
            """Book an item."""
            return self.world.do(item)

        self.book = book

    def books(self, item):
        """Book an item, or die."""
        if item == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.book.run(item=item)["id"]

    def crew(self):
        """Return a crew that books a room."""
        agent = Agent(
            role="clerk",
            goal="do it",
            backstory="you do",
            llm=Scripted.of([call("book", item="room")], "done"),
            tools=[self.book],
        )
        return Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)])

    def flow(self):
        """Return the class of the flow."""
        trips = self

        class Trip(Flow[State]):
            @start()
            @human_feedback(message="good?", provider=Later())
            def reserve(self):
                trips.books("seat")
                trips.crew().kickoff()
                trips.books("car")
                return ask_human("aisle?")

            @listen(reserve)
            def go(self, said):
                trips.books("seat")
                trips.books("taxi")
                return said.feedback

        return Trip

    def run(self, flow_id, *, resume=None, feedback=False):
        """Begin the flow, or go on with it."""
        options = {"suppress_flow_events": True}
        if feedback:
            flow = self.flow().from_pending(flow_id, self.kept, **options)
            return saga_run_sync(flow, kit=self.kit, resume=resume)
        flow = self.flow()(persistence=self.kept, **options)
        return saga_run_sync(flow, {"id": flow_id}, kit=self.kit, resume=resume)


def main(folder, flow_id, dies_at, said=None):
    """Run a flow, or go on with it with what a human said, until it dies."""
    Trips(folder, dies_at).run(flow_id, resume=said, feedback=said is not None)
