"""Runs one trajectory in a process that is killed at one call, and recovers it in another one.

Rules of this part:

- The world lives in this process, and is reached over a pipe: it survives its agent, and what is
  counted is counted here.
- The agent's process is killed with SIGKILL while its call waits for an answer. Another process
  then declares the same tools, as a service does when it is started again, and runs the daemon.
- A session's secrets are handed to the second process as a vault would; they are not in the log.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from agent_saga import RecoveryDaemon, SagaAborted
from bench.worlds.declaring import Declared, Session, User
from bench.worlds.faults import Died, Struck
from bench.worlds.outcome import Outcome, Seen, Told, judged, seen
from bench.worlds.running import told
from bench.worlds.world import Args, Task, World, WorldError

_FORKED = multiprocessing.get_context("fork")


class Remote:
    """Reaches the world through the process that holds it."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def agent(self, tool: str, args: Args) -> Any:
        """Make the agent's next call."""
        return self._asked("agent", tool, dict(args))

    def aside(self, tool: str, /, **args: Any) -> Any:
        """Make a call of an inverse, a prober or a look."""
        return self._asked("aside", tool, args)

    def undoing(self, step: str) -> None:
        """Say that an inverse of a step begins."""
        self._asked("undoing", step, {})

    def undone(self, step: str, *, well: bool, again: bool) -> None:
        """Say that an inverse of a step is over."""
        self._asked("undone", step, {"well": well, "again": again})

    def told(self, **what: Any) -> None:
        """Tell the holder something that it does not answer to."""
        self._line.send(("told", "", what))

    def _asked(self, kind: str, tool: str, args: dict[str, Any]) -> Any:
        self._line.send((kind, tool, args))
        error, answer = self._line.recv()
        if error:
            raise WorldError(error)
        return answer


def run_killed(world: World, task: Task, model: str, at: int, *, present: bool = False) -> Outcome:
    """Run a task in a process that is killed at one call, recover it, and judge the world.

    Args:
        world: what is played.
        task: the task.
        model: killed before the effect, or after it.
        at: at which call.
        present: somebody answers when the gate asks.
    """
    place = world.open(task)
    struck = Struck(world, place, model, at)
    with tempfile.TemporaryDirectory(prefix="agent-saga-worlds-") as folder:
        wal = os.path.join(folder, "agent-saga.wal")  # noqa: PTH118 - a log's path is a text
        first = _serve(struck, lambda line: _agent(world, task, Remote(line), wal, present=present))
        if "clean" in first:  # it ended by itself: refused, or done before the call
            end = Told(
                first["failed"], first["clean"], first["refused"], first["summary"], first["odd"]
            )
            return judged(world, task, (model, at), place, end, _seen(struck, first))
        session = first.get("session") or Session()
        second = _serve(struck, lambda line: _daemon(world, task, Remote(line), wal, session))
    end = Told(True, second["clean"], "", second["summary"])
    return judged(world, task, (model, at), place, end, _seen(struck, second))


def _seen(struck: Struck, told_of: dict[str, Any]) -> Seen:
    found = seen(struck, told_of["traces"], told_of["answers"])
    return replace(found, broken=tuple(told_of["broken"]))


def _serve(struck: Struck, work: Callable[[Connection], None]) -> dict[str, Any]:
    """Fork a process that does the work, answer its calls, and return what it told at last."""
    here, there = _FORKED.Pipe()
    process = _FORKED.Process(target=work, args=(there,))
    process.start()
    there.close()
    heard: dict[str, Any] = {}
    try:
        while True:
            kind, tool, args = here.recv()
            if kind == "told":
                heard |= args
            else:
                here.send(_answer(struck, kind, tool, args))
    except Died:
        os.kill(process.pid or 0, signal.SIGKILL)
    except EOFError:
        pass  # it ended
    process.join()
    here.close()
    return heard


def _answer(struck: Struck, kind: str, tool: str, args: dict[str, Any]) -> tuple[str, Any]:
    try:
        if kind == "agent":
            return "", struck.agent(tool, args)
        if kind == "aside":
            return "", struck.aside(tool, **args)
        if kind == "undoing":
            struck.undoing(tool)
        else:
            struck.undone(tool, **args)
        return "", None
    except WorldError as error:
        return str(error) or "error", None


def _agent(world: World, task: Task, remote: Remote, wal: str, *, present: bool) -> None:
    declared = Declared(world, task, remote, User(task, answers=present), wal=wal)
    try:
        with declared.kit.transaction(on_unsettled="warn") as saga:
            for call in task.calls:
                declared.session.keep(
                    {key: call.args[key] for key in world.secrets & call.args.keys()}
                )
                remote.told(session=declared.session)
                try:
                    declared.tools[call.tool](**call.args)
                except WorldError:
                    continue
        end = told(saga.report, None)
    except SagaAborted as aborted:
        end = told(aborted.report, aborted.cause)
    remote.told(
        clean=end.clean,
        failed=end.failed,
        refused=end.refused,
        summary=end.summary,
        odd=end.odd,
        traces=declared.traces,
        answers=declared.told,
        broken=declared.broken,
    )


def _daemon(world: World, task: Task, remote: Remote, wal: str, session: Session) -> None:
    declared = Declared(world, task, remote, User(task, answers=False), wal=wal)
    declared.session = session
    result = RecoveryDaemon(wal).recover_all()
    reasons = [f"{one.outcome}: {one.reason}" for one in result.sagas if one.reason]
    reports = [one.report.summary() for one in result.sagas if one.report is not None]
    remote.told(
        clean=result.clean,
        summary="\n".join(reports + reasons),
        traces=declared.traces,
        answers=declared.told,
        broken=declared.broken,
    )
