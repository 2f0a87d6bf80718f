"""Runs trajectories through LangGraph: an agent whose model plays the recorded calls.

    python -m bench.worlds.graph bfcl --runs 50 --seed 1

Rules of this part:

- The graph is LangChain's own agent, the model says what the trajectory says, and every run is a
  boundary of agent-saga-langgraph. An error of a tool is shown to the model, as the framework does;
  after the struck call the model ends the run, or repeats the call.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

from agent_saga import Compensation, SagaAborted
from agent_saga_langgraph import last_report, saga_agent, wrap_tool
from bench.worlds import faults, plans
from bench.worlds.__main__ import faulty, keep, opened, table, worlds
from bench.worlds.declaring import Declared, User
from bench.worlds.faults import GaveUp, Struck
from bench.worlds.outcome import Outcome, judged, seen
from bench.worlds.running import told
from bench.worlds.world import GoldCall, Task, World

MODELS = (faults.BEFORE, faults.AFTER, faults.HIDDEN, faults.GIVEN_UP, faults.RETRY)
_ANY = {"type": "object", "properties": {}, "additionalProperties": True}


class Script(BaseChatModel):
    """A model that says what was recorded."""

    lines: Any

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """Know the tools already."""
        return self

    def _generate(self, messages: Any, *args: Any, **options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=next(self.lines))])


class OnGraph(Declared):
    """A task's tools as tools of LangChain."""

    def _declare(self, name: str) -> Any:
        plan = self._world.plan(name)

        def forward(**args: Any) -> Any:
            return {"answer": self._reach.agent(name, args)}

        tool = StructuredTool.from_function(forward, name=name, description=name, args_schema=_ANY)
        if isinstance(plan, plans.Final):
            return wrap_tool(tool, kit=self.kit, **self._looked_at(plan))
        if not isinstance(plan, plans.Write):
            return wrap_tool(tool, semantics="REVERSIBLE", kit=self.kit)
        return wrap_tool(tool, kit=self.kit, **self._options(name, plan))

    def _looked_at(self, plan: plans.Final) -> dict[str, Any]:
        if plan.look is None:
            return {"semantics": "IRREVERSIBLE"}
        return {
            "semantics": "IRREVERSIBLE",
            "prepare": lambda args: self._prepared(plan, args),
            "prober": lambda prepared: self._answered(plan, prepared),
            "settle_after": 0,
        }

    def _options(self, name: str, plan: plans.Write) -> dict[str, Any]:
        def undo(prepared: Any, result: Any) -> None:
            self._undo(name, plan, prepared, result)

        def inverse(result: Any, *, prepared: Any) -> Compensation:
            known = None if result is None or plan.harmless else result["answer"]
            if isinstance(known, dict):  # the log takes no secrets, and no inverse needs them
                known = {key: known[key] for key in known.keys() - self._world.secrets}
            return Compensation(fn=undo, kwargs={"prepared": prepared, "result": known})

        early = (lambda prepared: inverse(None, prepared=prepared)) if plan.harmless else None
        return {
            "semantics": "COMPENSABLE",
            "compensate": inverse,
            "provisional": early,
            "idempotent": plan.again,
            "prepare": lambda args: self._prepared(plan, args),
            "prober": lambda prepared: self._answered(plan, prepared),
            "settle_after": 0,
        }

    def _answered(self, plan: plans.Write | plans.Final, prepared: Any) -> Any:
        answer = self._probed(plan, prepared)
        if hasattr(answer, "result"):
            answer.result = {"answer": answer.result}
        return answer


def run_on_graph(world: World, task: Task, model: str, at: int) -> Outcome:
    """Run one task with one fault as an agent of LangGraph."""
    place = world.open(task)
    struck = Struck(world, place, model, at)
    # A refusal is shown to the model and the run goes on, so one that has to end well is approved.
    user = User(task, answers=model == faults.RETRY)
    declared = OnGraph(world, task, struck, user)
    script = Script(lines=_lines(task, struck, model, at))
    agent: Any = create_agent(script, list(declared.tools.values()))
    cause: BaseException | None = None
    try:
        saga_agent(agent, declared.kit).invoke(
            {"messages": [("user", task.name)]}, {"recursion_limit": 1000}
        )
        report = last_report()
    except SagaAborted as aborted:
        report, cause = aborted.report, aborted.cause
    found = seen(struck, declared.traces, declared.told)
    return judged(world, task, (model, at), place, told(report, cause), found)


def _lines(task: Task, struck: Struck, model: str, at: int) -> Iterator[AIMessage]:
    for number, call in enumerate(task.calls):
        yield _said(call, f"{number}")
        if number != at:
            continue
        if model == faults.RETRY:
            struck.again()
            yield _said(call, f"{number}-again")
            struck.go_on()
        else:
            raise GaveUp(f"after {call.tool}")
    yield AIMessage("done")


def _said(call: GoldCall, number: str) -> AIMessage:
    asked = {"name": call.tool, "args": call.args, "id": number, "type": "tool_call"}
    return AIMessage("", tool_calls=[asked])


def main(arguments: list[str]) -> int:
    """Run, print, and return the exit code."""
    options = _parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"--seed {seed}", flush=True)
    outcomes = []
    for name in options.world or ("bfcl",):
        world = opened(name)
        rng, tasks = random.Random(f"{seed} {name}"), world.tasks()
        for model in MODELS:
            for _ in range(options.runs):
                task = rng.choice(tasks)
                at = rng.randrange(len(task.calls))
                outcomes.append(run_on_graph(world, task, model, at))
    print(table(outcomes))
    if options.json:
        keep(options.json, outcomes, {"kind": "graph", "seed": seed, "each": options.runs})
    wrong = [one for one in outcomes if faulty(one)]
    for one in wrong[:5]:
        print(one.world, one.task, one.model, one.at, one.residue[:4], one.told, sep="\n  ")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.worlds.graph", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("world", nargs="*", choices=[*worlds(), []])
    parser.add_argument("--runs", type=int, default=20, help="runs of each fault")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", metavar="FILE", help="write every outcome")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
