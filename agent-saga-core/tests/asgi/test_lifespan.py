"""The lifespan starts log and recovery with the application and ends them with it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent_saga import (
    AgentKit,
    FileWAL,
    SagaAborted,
    Settings,
    saga_lifespan,
    saga_scope,
    set_default_wal,
)
from agent_saga.cli.reading import read_log
from agent_saga.errors import ConfigurationError
from agent_saga.runtime.logs import chosen_wal

pytestmark = pytest.mark.anyio

QUICK = Settings(settle_after=0.0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def exit_of(script: list[str]) -> int:
    return subprocess.run(script, check=False).returncode


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def verdicts(log: Path) -> list[tuple[str, bool]]:
    return [(view.state.value, view.clean) for view in read_log(log).sagas.values()]


async def test_boundaries_use_the_log_of_the_application(tmp_path: Path) -> None:
    log = tmp_path / "log"
    kit = AgentKit("app")
    done: list[int] = []

    @kit.tool("COMPENSABLE")
    async def act(number: int) -> int:
        done.append(number)
        return number

    @act.undo
    async def undo_act(result: int) -> None:
        done.remove(result)

    async with saga_lifespan(str(log), interval=0.05, settings=QUICK)(object()):
        async with kit.transaction():
            await act(1)
        with pytest.raises(SagaAborted):
            async with kit.transaction():
                await act(2)
                raise RuntimeError
    assert done == [1]
    assert verdicts(log) == [("COMMITTED", True), ("ROLLED_BACK", True)]


@pytest.mark.parametrize("nested", [True, False])
async def test_applications_on_one_log_may_overlap(
    tmp_path: Path, nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of the one that goes on stays open, and stays the one that is written and watched."""
    monkeypatch.chdir(tmp_path)
    log, kit = tmp_path / "log", AgentKit("app")

    @kit.tool("COMPENSABLE")
    async def act() -> None: ...

    @act.undo
    async def undo_act() -> None: ...

    outer, inner = [saga_lifespan(log, interval=0.05, settings=QUICK)(object()) for _ in range(2)]
    ends = (inner, outer) if nested else (outer, inner)
    await outer.__aenter__()
    await inner.__aenter__()
    for application in ends:
        async with kit.transaction():
            await act()
        await application.__aexit__(None, None, None)
    assert verdicts(log) == [("COMMITTED", True)] * 2
    assert names_in(tmp_path) == ["log"], "no other log was begun"


async def test_logs_of_applications_that_overlap_do_not_mix(tmp_path: Path) -> None:
    usual = FileWAL(tmp_path / "usual")
    set_default_wal(usual)
    first, second = [
        saga_lifespan(tmp_path / name, interval=0.05, settings=QUICK)(object())
        for name in ("first", "second")
    ]
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    async with saga_scope() as saga:
        await saga.execute(tool="look", semantics="REVERSIBLE", forward=lambda: 1)
    assert verdicts(tmp_path / "second") == [("COMMITTED", True)]
    await second.__aexit__(None, None, None)
    assert chosen_wal() is usual, "what the program had chosen before"
    set_default_wal(None)


async def test_a_log_that_was_closed_is_refused_at_the_start(tmp_path: Path) -> None:
    application = saga_lifespan(FileWAL(tmp_path / "log"), interval=0.05)
    async with application(object()):
        pass
    with pytest.raises(ConfigurationError, match="was closed"):
        async with application(object()):
            pass


async def test_the_daemon_beside_it_never_touches_a_live_saga(tmp_path: Path) -> None:
    log = tmp_path / "log"
    kit = AgentKit("app", settings=QUICK)
    undone: list[Any] = []

    @kit.tool("COMPENSABLE")
    async def act() -> str:
        return "done"

    @act.undo
    async def undo_act(result: str) -> None:
        undone.append(result)

    async with (
        saga_lifespan(str(log), interval=0.01, settings=QUICK)(object()),
        kit.transaction(),
    ):
        await act()
        await asyncio.sleep(0.5)
    assert undone == []
    assert verdicts(log) == [("COMMITTED", True)]


async def test_shutdown_does_not_wait_for_a_saga_that_is_only_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kit = AgentKit("app")

    @kit.tool("COMPENSABLE")
    async def act() -> str:
        return "done"

    @act.undo
    async def undo_act(result: str) -> None: ...

    held = []
    async with saga_lifespan(str(tmp_path / "log"), grace=0.3, settings=QUICK)(object()):
        for _ in range(2):
            async with kit.transaction(saga_id="request-1", resume=True) as saga:
                held.append(saga)
                assert await act() == "done"
    assert "left to recovery" not in caplog.text


async def test_shutdown_waits_for_a_saga_that_is_being_undone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    kit = AgentKit("app")
    undone = asyncio.Event()
    began = asyncio.Event()

    @kit.tool("COMPENSABLE")
    async def act() -> str:
        return "done"

    @act.undo
    async def undo_act(result: str) -> None:
        began.set()
        await asyncio.sleep(0.3)
        undone.set()

    async def run() -> None:
        async with kit.transaction():
            await act()
            raise RuntimeError

    async with saga_lifespan(str(log), interval=0.05, settings=QUICK)(object()):
        task = asyncio.create_task(run())
        await began.wait()
    assert undone.is_set()
    with pytest.raises(SagaAborted):
        await task
    assert verdicts(log) == [("ROLLED_BACK", True)]


@pytest.mark.crash
async def test_it_recovers_what_an_earlier_process_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, world = tmp_path / "log", tmp_path / "world"
    (tmp_path / "left_behind.py").write_text(
        textwrap.dedent(
            f"""
            import os
            from agent_saga import AgentKit
            kit = AgentKit("app", wal={str(log)!r})

            @kit.tool("COMPENSABLE")
            def act():
                with open({str(world)!r}, "a") as file: file.write("act ")
                return 1

            @act.undo
            def undo_act(result):
                with open({str(world)!r}, "a") as file: file.write("undo ")

            if __name__ == "__main__":
                with kit.transaction():
                    act()
                    os._exit(9)
            """
        )
    )
    script = [sys.executable, str(tmp_path / "left_behind.py")]
    assert await asyncio.to_thread(exit_of, script) == 9
    monkeypatch.syspath_prepend(str(tmp_path))
    lifespan = saga_lifespan(str(log), interval=0.05, settings=QUICK, imports=["left_behind"])
    async with lifespan(object()):
        for _ in range(200):
            if world.read_text() == "act undo ":
                break
            await asyncio.sleep(0.05)
    assert world.read_text() == "act undo "
    assert verdicts(log) == [("ROLLED_BACK", True)]
