"""Logs written by the real log, and the command line run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from agent_saga.cli.main import main
from agent_saga.domain.records import Ev
from agent_saga.wal.file import FileWAL

if TYPE_CHECKING:
    from pathlib import Path

CHARGE = "abcdefgh1234567890abcd"
INVERSE = {"handler": "acme.refund", "kwargs": {"id": "c1"}}


class Run(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Run]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Run `agent-saga` with these words, in an empty folder and without foreign plugins."""
    monkeypatch.chdir(tmp_path)
    for name in ("AGENT_SAGA_WAL", "AGENT_SAGA_DISABLE_PLUGINS", "AGENT_SAGA_TRACE_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    capsys.readouterr()

    def run(*words: object) -> Run:
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Run(code, out, err)

    return run


class Log:
    """A log in which a test writes records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._wal = FileWAL(str(path))

    def add(
        self,
        event: str,
        facts: Mapping[str, Any] | None = None,
        *,
        saga: str = "saga-1",
        step: str = "",
        epoch: int = 1,
    ) -> int:
        return self._wal.append(event, saga=saga, epoch=epoch, step=step, payload=facts or {})

    @property
    def writer(self) -> str:
        """The id of the writer."""
        return self._wal.writer

    def begin(self, saga: str = "saga-1", name: str = "checkout") -> None:
        self.add(Ev.SAGA_BEGIN, {"about": {"name": name, "labels": {}}}, saga=saga)

    def charged(self, saga: str = "saga-1", inverse: Mapping[str, Any] = INVERSE) -> int:
        call = {"tool": "charge", "semantics": "COMPENSABLE"}
        facts = {"call": call, "args": {"amount": 4200}}
        self.add(Ev.STEP_INTENT, facts, saga=saga, step=CHARGE)
        done = {"result": 1, "inverse": inverse}
        return self.add(Ev.STEP_COMMITTED, done, saga=saga, step=CHARGE)

    def sync(self) -> None:
        """Make durable what was written; what follows carries the watermark."""
        self._wal.barrier_sync()

    def close(self) -> None:
        self._wal.close()


@pytest.fixture
def log(tmp_path: Path) -> Any:
    """Return a log at ./agent-saga.wal."""
    made = Log(tmp_path / "agent-saga.wal")
    yield made
    made.close()
