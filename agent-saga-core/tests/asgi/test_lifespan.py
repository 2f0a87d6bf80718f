"""The lifespan starts log and recovery with the application and ends them with it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent_saga import AgentKit, SagaAborted, Settings, saga_lifespan
from agent_saga.cli.reading import read_log

pytestmark = pytest.mark.anyio

QUICK = Settings(settle_after=0.0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def exit_of(script: list[str]) -> int:
    return subprocess.run(script, check=False).returncode


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
