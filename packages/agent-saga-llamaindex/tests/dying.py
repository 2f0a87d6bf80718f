"""A program whose workflow sends an event again and dies; started again, it goes on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from agent_saga_llamaindex import saga_run, saga_tool
from conftest import Shop

AGAIN = retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(3))


class Work(Event):
    pass


class Done(Event):
    pass


class Sends(Workflow):
    """Sends an event, fails, sends it again, and does not come to its end at first."""

    def __init__(self, tool, dies):
        super().__init__(timeout=None)
        self.tool, self.dies, self.attempts = tool, dies, 0
        self.handled = asyncio.Event()

    @step(retry_policy=AGAIN)
    async def act(self, ctx: Context, ev: StartEvent) -> Work | None:
        self.attempts += 1
        ctx.send_event(Work())
        if self.dies and self.attempts == 1:
            raise ConnectionError("lost")
        if self.dies:
            await self.handled.wait()
            await asyncio.sleep(0)
            self.dies(ctx)

    @step(num_workers=1)
    async def work(self, ev: Work) -> Done:
        await self.tool.acall(item="desk")
        if self.dies:
            self.handled.set()
            await asyncio.Event().wait()
        return Done()

    @step
    async def end(self, ctx: Context, ev: Done) -> StopEvent | None:
        return StopEvent(result="done") if ctx.collect_events(ev, [Done] * 3) else None


async def main(folder):
    shop, kept = Shop(folder), folder / "context.json"
    tool = saga_tool(shop.do, compensate=shop.undo, name="book", kit=shop.kit)
    if kept.exists():
        context = json.loads(kept.read_text("utf-8"))
        sys.stdout.write(await saga_run(Sends(tool, None), ctx=context, kit=shop.kit))
        return

    def die(_):
        kept.write_text(json.dumps(context.to_dict()), "utf-8")
        os._exit(1)

    work = Sends(tool, die)
    context = Context(work)
    await saga_run(work, ctx=context, kit=shop.kit, key="order")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asyncio.run(main(Path(sys.argv[1])))
