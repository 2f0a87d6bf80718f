"""Every kind of team that AutoGen has: what its agents do is one saga, in any runtime."""

from __future__ import annotations

import asyncio
import json

import pytest
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_core import CancellationToken
from scripted import Scripted, call
from test_ends import runtime_of

from agent_saga import SagaAborted
from agent_saga_autogen import last_report, saga_agent, saga_run

SEAT = [call("book", item="seat")]
ROOM = [call("book", item="room")]
DOWN = OSError("the model is down")
END = TextMentionTermination("TERMINATE")


def round_robin(members, runtime):
    return RoundRobinGroupChat(members, max_turns=2, runtime=runtime)


def selected(members, runtime):
    return SelectorGroupChat(members, Scripted("A", "B"), max_turns=2, runtime=runtime)


def swarm(members, runtime):
    return Swarm(members, termination_condition=END, runtime=runtime)


def graph(members, runtime):
    builder = DiGraphBuilder()
    for member in members:
        builder.add_node(member)
    builder.add_edge(*members)
    return GraphFlow(members, builder.build(), runtime=runtime)


def beside(members, runtime):
    builder = DiGraphBuilder()
    for member in members:
        builder.add_node(member)
    return GraphFlow(members, builder.build(), runtime=runtime)


def ledger(speaker, *, done=False):
    asked = {
        "is_request_satisfied": done,
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": speaker,
        "instruction_or_question": "do it",
    }
    return json.dumps({name: {"reason": "so", "answer": what} for name, what in asked.items()})


def magentic(members, runtime):
    said = ["facts", "plan", ledger("A"), ledger("B"), ledger("A", done=True), "all is done"]
    return MagenticOneGroupChat(members, Scripted(*said), runtime=runtime)


KINDS = [round_robin, selected, swarm, graph, beside, magentic]


@pytest.mark.parametrize("place", ["own", "foreign"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
class TestATeam:
    @staticmethod
    def team(shop, kind, runtime, *last):
        over = [[call("transfer_to_b")]] if kind is swarm else ["A has a seat"]
        options = {"handoffs": ["B"]} if kind is swarm else {}
        first = shop.agent(SEAT, *over, description="Books seats.", **options)
        second = shop.agent(ROOM, *last, name="B", description="Books rooms.")
        return saga_agent(kind([first, second], runtime), shop.kit, tools=shop.declared)

    def test_keeps_what_its_agents_did(self, shop, kind, place):
        async def case():
            async with runtime_of(place) as runtime:
                await saga_run(self.team(shop, kind, runtime, "B is done TERMINATE"), "go on")
                return last_report()

        assert asyncio.run(case()).outcome == "COMMITTED"
        shop.world.assert_applied_once("seat", "room")

    def test_undoes_all_of_it_when_an_agent_fails(self, shop, kind, place):
        async def case():
            async with runtime_of(place) as runtime:
                with pytest.raises(SagaAborted) as aborted:
                    await saga_run(self.team(shop, kind, runtime, DOWN), "go on")
                return aborted.value

        aborted = asyncio.run(case())
        assert aborted.cause is DOWN
        assert aborted.report.clean
        assert sorted(shop.world.undone()) == ["room", "seat"]
        shop.world.assert_restored()

    def test_is_undone_when_it_is_cancelled(self, shop, kind, place):
        async def case():
            async with runtime_of(place) as runtime:
                team = self.team(shop, kind, runtime, "never")
                waits = asyncio.Event()
                second = shop_agent(team, "B")
                second._model_client.create = held(second._model_client, waits)
                token = CancellationToken()
                task = asyncio.ensure_future(saga_run(team, "go on", cancellation_token=token))
                await waits.wait()
                token.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(case())
        shop.world.assert_restored()


def shop_agent(team, name):
    [found] = [member for member in team._participants if member.name == name]
    return found


def held(model, reached):
    """Return what asks a model, and is held at its second turn."""
    create = model.create

    async def created(messages, **options):
        answer = await create(messages, **options)
        if isinstance(answer.content, str):
            reached.set()
            waiting = asyncio.ensure_future(asyncio.Event().wait())
            options["cancellation_token"].link_future(waiting)  # as a provider's client does
            await waiting
        return answer

    return created
