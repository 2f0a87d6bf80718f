"""An agent that kills its process after its first effect; run by `test_crashes`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver

sys.path.insert(0, str(Path(__file__).parent))
from langchain_core.tools import StructuredTool
from scripted import Scripted, call

from agent_saga import AgentKit
from agent_saga_langgraph import compensable, saga_agent
from agent_saga_testing.integration.driver import QUICK
from agent_saga_testing.integration.tools import Tools

PROMPT = {"messages": [("user", "go on")]}
THREAD = {"configurable": {"thread_id": "1"}}
ITEMS = ["seat", "room", "car"]


class Deciding(Scripted):
    """Says what follows from the messages; kills its process before the last turn, once."""

    folder: str
    think: float = 0.0
    items: list[str] = ITEMS

    def _generate(self, messages, *args, **kwargs):
        done = sum(isinstance(message, ToolMessage) for message in messages)
        mark = Path(self.folder, "died")
        if done == 2 and not mark.exists():
            time.sleep(self.think)
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        turn = [call("book", item=self.items[done])] if done < len(self.items) else "done"
        self.script, self.turn = [turn], 0
        return super()._generate(messages, *args, **kwargs)


def agent(folder, saver, **model):
    tool = Tools(Path(folder)).book()
    book = StructuredTool.from_function(tool.function, name="book")
    kit = AgentKit("shop", wal=str(Path(folder, "log")), settings=QUICK)
    made = create_agent(
        Deciding(script=[], folder=str(folder), **model), [book], checkpointer=saver
    )
    return saga_agent(made, kit, tools={"book": compensable(tool.compensate)})


def saved(folder):
    return SqliteSaver.from_conn_string(str(Path(folder, "checkpoints.sqlite")))


def main(folder, durability, think):
    """Run the agent until it dies; `think` is for how long its model does so before."""
    with saved(folder) as saver:
        agent(folder, saver, think=think).invoke(PROMPT, THREAD, durability=durability)
