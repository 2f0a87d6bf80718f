"""Runs programs that are killed on the way. One process forks a child for every run.

A program is a list of operations:

    ["do", n]            an effect that can be undone, whose answer may be lost
    ["keyed", n]         the same, under the key n
    ["read", n]          a read
    ["send", n]          an approved effect that stands for ever
    ["all", [n, …]]      effects at the same time (one after the other in a synchronous program)
    ["save", ops, fails] a savepoint; its failure is caught
    ["suspend", n]       suspends, when the run meets this for the first time

The child dies at its `cut`-th point; a point stands before and behind every record and effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from agent_saga import (
    AgentKit,
    Applied,
    FileWAL,
    NotApplied,
    PreFlightGate,
    RecoveryDaemon,
    SagaAborted,
    SagaClosed,
    Settings,
)
from agent_saga.controls.approvals import Approval
from agent_saga.errors import SagaSuspended

QUICK = Settings(settle=2.0, settle_after=0.05, inverse_delay=0.0, on_unsettled="warn")
KILLED = 9


class Failed(Exception):
    """A program or a savepoint fails."""


class Points:
    """Counts the points of a run, and dies at the one that was named."""

    def __init__(self, cut: int) -> None:
        self.left = cut

    def meet(self) -> None:
        self.left -= 1
        if self.left == 0:
            os._exit(KILLED)


class CutWAL(FileWAL):
    """A log whose process dies before or behind a record."""

    points = Points(0)

    def append(self, *args: Any, **kwargs: Any) -> int:
        self.points.meet()
        seq = super().append(*args, **kwargs)
        self.points.meet()
        return seq


class World:
    """A file to which every effect is a line."""

    def __init__(self, path: str, points: Points) -> None:
        self._path = path
        self._points = points

    def lines(self) -> list[list[str]]:
        path = Path(self._path)
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def write(self, *words: object) -> None:
        self._points.meet()
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, (" ".join(map(str, words)) + "\n").encode())
        os.close(fd)
        self._points.meet()

    def has(self, *words: str) -> bool:
        return any(line[: len(words)] == list(words) for line in self.lines())


class Everybody:
    """Approves everything."""

    def ask(self, request: Any) -> Approval:
        return Approval(True, "everybody")


class Toolbox:
    """The tools of all programs."""

    def __init__(self, kit: AgentKit, world: World) -> None:
        def forward(n: int, key: str) -> dict[str, Any]:
            world.write("do", key, n)
            return {"n": n, "key": key}

        def found(args: dict[str, Any], idempotency_key: str) -> Any:
            if world.has("do", idempotency_key):
                return Applied({"n": args["n"], "key": idempotency_key})
            return NotApplied(final=True)

        @kit.tool("COMPENSABLE")
        def do(n: int, idempotency_key: str) -> dict[str, Any]:
            return forward(n, idempotency_key)

        @do.undo(idempotent=True)
        def undo(result: dict[str, Any], idempotency_key: str) -> None:
            if not world.has("undo", idempotency_key):
                world.write("undo", idempotency_key, result["n"], result["key"])

        @kit.tool("REVERSIBLE")
        def read(n: int) -> int:
            return n

        @kit.tool("IRREVERSIBLE")
        def send(n: int, idempotency_key: str) -> dict[str, Any]:
            return forward(n, idempotency_key)

        do.probe(found)
        send.probe(found)
        self.do, self.read, self.send, self.world = do, read, send, world

    def one(self, operation: list[Any]) -> Any:
        """Return the tool, or tool with key, of a plain operation."""
        what, n = operation
        return self.do.keyed(str(n)) if what == "keyed" else getattr(self, what)

    def suspends(self, n: int) -> bool:
        """Say whether the run is the first that comes here."""
        first = not self.world.has("met", str(n))
        if first:
            self.world.write("met", n)
        return first


async def run_async(tools: Toolbox, saga: Any, operations: list[Any]) -> None:
    for operation in operations:
        if operation[0] == "save":
            with contextlib.suppress(SagaAborted, Failed):
                async with saga.savepoint("part"):
                    await run_async(tools, saga, operation[1])
                    if operation[2]:
                        raise Failed
        elif operation[0] == "all":
            await asyncio.gather(*[tools.do(n) for n in operation[1]])
        elif operation[0] == "suspend":
            if tools.suspends(operation[1]):
                saga.suspend("waits")
        else:
            assert _result(await tools.one(operation)(operation[1])) == operation[1]


def run_sync(tools: Toolbox, saga: Any, operations: list[Any]) -> None:
    for operation in operations:
        if operation[0] == "save":
            with contextlib.suppress(SagaAborted, Failed), saga.savepoint("part"):
                run_sync(tools, saga, operation[1])
                if operation[2]:
                    raise Failed
        elif operation[0] == "all":
            for n in operation[1]:
                tools.do(n)
        elif operation[0] == "suspend":
            if tools.suspends(operation[1]):
                saga.suspend("waits")
        else:
            assert _result(tools.one(operation)(operation[1])) == operation[1]


def _result(value: Any) -> Any:
    return value["n"] if isinstance(value, dict) else value


def run(case: dict[str, Any]) -> None:
    """Run a program once, or recover what it left."""
    points = CutWAL.points = Points(case["cut"])
    wal = CutWAL(Path(case["folder"], "log"))
    gate = PreFlightGate(approval_provider=Everybody())
    kit = AgentKit("cut", wal=wal, gate=gate, settings=QUICK)
    tools = Toolbox(kit, World(str(Path(case["folder"], "world")), points))
    if case["recovers"]:
        RecoveryDaemon(wal, settings=QUICK).recover_all()
        return
    boundary = kit.transaction(saga_id="program", resume=True)
    if case["is_async"]:

        async def whole() -> None:
            async with boundary as saga:
                await run_async(tools, saga, case["operations"])
                if case["fails"]:
                    raise Failed

        asyncio.run(whole())
        return
    with boundary as saga:
        run_sync(tools, saga, case["operations"])
        if case["fails"]:
            raise Failed


def main() -> None:
    """Run every case that a line of standard input describes; answer how it ended."""
    for line in sys.stdin:
        case = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                run(case)
            except (SagaAborted, SagaSuspended, SagaClosed, Failed):
                os._exit(1)
            except BaseException:
                Path(case["folder"], "trouble").write_text(traceback.format_exc())
                os._exit(2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
