"""A program whose run waits for an approval and is killed; others go on with its state.

resuming.py FOLDER wait            waits, stores the state, and is killed
resuming.py FOLDER go [killed]     goes on with the state as soon as FOLDER/go exists
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from agents import Agent, RunState, function_tool
from scripted import Scripted, call

from agent_saga_openai_agents import approve, compensable, last_report, saga_agent, saga_run
from agent_saga_testing.waiting import until
from conftest import Shop

SCRIPT = ([call("book", "c1", item="seat")], [call("order", "c2", item="room")], "done")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def agent_of(shop, script, dies=False):
    @function_tool(needs_approval=True)
    def order(item: str) -> dict:
        """Order."""
        made = shop.world.do(item)
        if dies:
            kill()
        return made

    tools = {"book": shop.declared["book"], "order": compensable(shop.undo)}
    agent = Agent(name="A", model=Scripted(list(script)), tools=[shop.book, order])
    return saga_agent(agent, shop.kit, tools=tools)


async def waits(shop, stored):
    result = await saga_run(agent_of(shop, SCRIPT), "go on", key="k")
    stored.write_text(result.to_state().to_string(), "utf-8")
    kill()


async def goes_on(shop, stored, dies):
    agent = agent_of(shop, ["done"], dies)
    state = await RunState.from_string(agent, stored.read_text("utf-8"))
    (shop.folder / f"ready {os.getpid()}").touch()
    until((shop.folder / "go").exists)
    try:
        result = await saga_run(agent, approve(state, by="ann"), key="k")
    except Exception as error:
        sys.stdout.write(type(error).__name__)
        traceback.print_exc()
    else:
        report = last_report()
        how = "again" if report is None else "clean" if report.clean else "not clean"
        sys.stdout.write(f"{result.final_output} {how}")


if __name__ == "__main__":
    shop = Shop(Path(sys.argv[1]))
    stored = shop.folder / "state.json"
    if sys.argv[2] == "wait":
        asyncio.run(waits(shop, stored))
    asyncio.run(goes_on(shop, stored, "killed" in sys.argv))
