"""Tools of classes with constructors of their own, and agents that bring tools when they run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from agents import Agent, FunctionTool
from scripted import Scripted, call

from agent_saga import SagaAborted, compensator
from agent_saga.errors import UndeclaredTool
from agent_saga_openai_agents import compensable, read_only, saga_agent, saga_run, wrap_tool


@dataclass
class Desk(FunctionTool):
    """Books in a world that it is made with."""

    world: object = field(init=False, default=None, compare=False)

    def __init__(self, world):
        self.world = world
        shape = {"item": {"type": "string"}}
        schema = {"type": "object", "properties": shape, "required": ["item"]}
        super().__init__(
            name="book",
            description="Book an item.",
            params_json_schema={**schema, "additionalProperties": False},
            on_invoke_tool=self.books,
        )

    async def books(self, context, text):
        return await asyncio.to_thread(self.world.do, json.loads(text)["item"])


SCRIPT = [[call("book", item="seat")], OSError("down")]


def fails(agent, **options):
    with pytest.raises(SagaAborted) as failed:
        asyncio.run(saga_run(agent, "go on", **options))
    return failed.value


@pytest.mark.parametrize("how", ["wrapped", "declared"])
def test_a_tool_of_a_class_with_a_constructor_of_its_own_is_a_step(shop, how):
    desk = Desk(shop.world)
    agent = Agent("A", model=Scripted(list(SCRIPT)), tools=[desk])
    if how == "wrapped":
        agent.tools = [wrap_tool(desk, compensate=shop.undo, kit=shop.kit)]
        assert isinstance(agent.tools[0], Desk)
        agent = saga_agent(agent, shop.kit)
    else:
        agent = saga_agent(agent, shop.kit, tools={"book": shop.declared["book"]})
    assert fails(agent).report.clean
    assert shop.world.undone() == ["seat"]


@pytest.mark.parametrize("declares", [True, False])
def test_tools_of_a_sandbox_are_declared_by_name(tmp_path, shop, declares):
    sandbox = pytest.importorskip("agents.sandbox")
    local = pytest.importorskip("agents.sandbox.sandboxes.unix_local")
    run_config = pytest.importorskip("agents.run").RunConfig(
        sandbox=sandbox.SandboxRunConfig(client=local.UnixLocalSandboxClient())
    )

    @compensator("sandbox.notes")
    def notes(name, *, idempotency_key):
        undone.append(name)

    undone = []
    script = [[call("exec_command", cmd="echo room > room")], OSError("down")]
    agent = sandbox.SandboxAgent(name="A", model=Scripted(script))
    reads = dict.fromkeys(["view_image", "apply_patch", "write_stdin"], read_only())
    declared = {**reads, "exec_command": compensable(notes.using(name="room"))}
    ended = fails(
        saga_agent(agent, shop.kit, tools=declared if declares else {}), run_config=run_config
    )
    assert isinstance(ended.cause, OSError if declares else UndeclaredTool)
    assert undone == (["room"] if declares else [])
