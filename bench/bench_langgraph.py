"""Measures what a wrapped tool of LangGraph costs beside the bare one.

    python bench/bench_langgraph.py            judged as ratios
    python bench/bench_langgraph.py --quick    fewer and shorter rounds

Rules of this part:

- The floor is the same tool, called by the same framework, without agent-saga; both are measured in
  the same round.
- A read costs no disk. An effect waits for the disk once before it; so its floor is the bare call
  and one write and sync of 300 bytes, `F`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from agent_saga_langgraph import wrap_tool
from bench import floors, report
from bench.measure import FULL, QUICK, Effort, Figure, interleaved, p50
from bench.workload import ARGUMENTS, RESULT, Work, give_back, work

GROUP = "langgraph"
BARS = (2.0, 4.0, 1.5, 3.0)
"""What a call, and a run of the smallest graph, may cost beside the bare ones."""


def charge(customer: str, amount: int, currency: str, order: str, note: str) -> dict[str, Any]:
    """Charge a customer."""
    del customer, amount, currency, order, note
    return RESULT


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    calls = int(60 * effort.calls)
    with work() as w:
        bare = StructuredTool.from_function(charge)
        inverse = give_back.using(charge="$.id", amount="$.amount")
        read = wrap_tool(bare, semantics="REVERSIBLE", kit=w.kit)
        effect = wrap_tool(bare, compensate=inverse, kit=w.kit)
        disk = floors.SyncedFile(w.folder)
        samples = interleaved(
            {
                "bare": lambda: p50(_call(bare), calls, floor=True),
                "F": lambda: p50(disk.line, calls, floor=True),
                "read": lambda: _inside(w, _call(read), calls),
                "effect": lambda: _inside(w, _call(effect), calls),
                "bare node": lambda: p50(_node(bare), calls, floor=True),
                "read node": lambda: _inside(w, _node(read), calls),
                "effect node": lambda: _inside(w, _node(effect), calls),
            },
            effort.rounds,
            ("bare", "F", "bare node"),
        )
        disk.close()

    def figure(name: str, bar: float, case: str, *floor: str) -> Figure:
        told = samples.microseconds(case, *floor)
        return Figure(GROUP, name, samples.ratio(case, *floor), "bare", bar, detail=told)

    return [
        figure("a wrapped read, over the bare tool", BARS[0], "read", "bare"),
        figure("a wrapped effect, over the bare tool and F", BARS[1], "effect", "bare", "F"),
        figure("a graph with a wrapped read, over the bare one", BARS[2], "read node", "bare node"),
        figure(
            "a graph with a wrapped effect, over the bare one and F",
            BARS[3],
            "effect node",
            "bare node",
            "F",
        ),
    ]


def _call(tool: BaseTool) -> Callable[[], object]:
    given: dict[str, Any] = {**ARGUMENTS}
    return lambda: tool.invoke(given)


def _node(tool: BaseTool) -> Callable[[], object]:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([tool]))
    builder.add_edge(START, "tools")
    graph = builder.compile()
    asked = {"name": tool.name, "args": {**ARGUMENTS}, "id": "call_1", "type": "tool_call"}
    given: Any = {"messages": [AIMessage("", tool_calls=[asked])]}
    return lambda: graph.invoke(given)


def _inside(w: Work, call: Callable[[], object], calls: int) -> float:
    with w.kit.transaction():
        return p50(call, calls)


def main(arguments: list[str]) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measures LangGraph's tools, wrapped and bare.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    found = figures(effort)
    print(report.text(found, effort))
    return 0 if all(figure.ok for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
