"""Parts of a case that run in a process of their own, which may die."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_saga import PreFlightGate
from agent_saga_testing.integration.driver import AgentDriver, Call, CaseTool, Ended, Options, Turn
from agent_saga_testing.integration.tools import KILLED, Tools
from agent_saga_testing.kits.forks import run_forked

__all__ = ["agent_of", "book", "run_and_die", "run_elsewhere"]


def run_elsewhere(
    driver: type[AgentDriver], folder: Path, script: Sequence[Turn], **options: Any
) -> Ended:
    """Run a resumable agent in another process, which then ends; options as `driver.Options`."""
    made = _reference(driver)
    return Ended(*run_forked(_run, *made, folder, script, options, load=(_module, made[0])))


def run_and_die(driver: type[AgentDriver], folder: Path, script: Sequence[Turn]) -> None:
    """Run a resumable agent in another process, which dies of `Tools.dies_once` on the way.

    Raises:
        AssertionError: it did not die, or of something else.
    """
    made = _reference(driver)
    try:
        answer = run_forked(_run, *made, folder, script, {}, load=(_module, made[0]))
    except ChildProcessError as died:
        if died.args[-1] == KILLED:
            return
        raise AssertionError(f"The process was not killed by its tool: {died}") from died
    raise AssertionError(f"The process lived, and answered {answer!r}.")


def agent_of(driver: AgentDriver, tools: Tools, script: Sequence[Turn], **options: Any) -> Any:
    """Return the resumable agent that both processes of a case make."""
    known = [tools.book(), tools.wire(), tools.dies_once(), tools.look_up()]
    kit = driver.kit(PreFlightGate(approval_provider=driver.approvals()))
    given = [*known, CaseTool("ask", driver.asks())]
    return driver.agent(kit, script, given, Options(resumable=True, **options))


def _reference(driver: type[AgentDriver]) -> tuple[str, str]:
    return inspect.getfile(driver), driver.__qualname__


def _run(
    file: str, name: str, folder: Path, script: Sequence[Turn], options: dict[str, Any]
) -> tuple[str, bool]:
    driver: AgentDriver = getattr(_module(file), name)(folder)
    ended = asyncio.run(driver.run(agent_of(driver, Tools(folder), script, **options)))
    return ended.text, ended.waits


@functools.cache
def _module(file: str) -> ModuleType:
    """Return the module of a driver, which loads its framework."""
    spec = importlib.util.spec_from_file_location("agent_saga_driver", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def book(*items: str) -> list[Call]:
    """Return calls of `book` for items, as one turn of the model."""
    return [Call("book", {"item": item}) for item in items]
