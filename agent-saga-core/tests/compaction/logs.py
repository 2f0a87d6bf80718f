"""Logs of several writers, made by hand, with segments so small that they fill at once."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.recovery.survey import look
from agent_saga.wal.base import _logs
from agent_saga.wal.damage import Damage
from agent_saga.wal.encoding import masked
from agent_saga.wal.file import FileWAL
from agent_saga.wal.format import Record, line_of
from agent_saga.wal.os_port import OsPort, _fork_aware
from agent_saga.wal.reader import scan_log
from agent_saga_testing.faults import FaultyPort, SimulatedCrash

SALT = "c2FsdHNhbHRzYWx0c2E"


class Quick(OsPort):
    """A port that syncs nothing: a kill loses nothing that was written anyway."""

    def fsync(self, fd: int) -> None:
        del fd

    def fdatasync(self, fd: int) -> None:
        del fd


class Writer:
    """A process that writes; it lives until it closes or is killed."""

    def __init__(self, path: Path, port: OsPort | None = None) -> None:
        self.port = FaultyPort(port)
        self.wal = FileWAL(path, self.port, mark_after=3600.0)

    def write(
        self, event: str, saga: str = "", step: str = "", epoch: int = 1, **payload: Any
    ) -> int:
        seq = self.wal.append(
            event, saga=saga, epoch=epoch if saga else 0, step=step, payload=masked(payload)[0]
        )
        self.wal.drain()
        return seq

    def begin(self, saga: str, epoch: int = 1, key: str | None = None) -> None:
        about = {"name": "n", "labels": {}} | ({"key": key} if key else {})
        self.write(Ev.SAGA_BEGIN, saga, epoch=epoch, about=about, salt=SALT)

    def intent(self, saga: str, step: str, epoch: int = 1) -> None:
        call = {"tool": "charge", "semantics": "COMPENSABLE"}
        self.write(Ev.STEP_INTENT, saga, step, epoch, call=call, nth=1, args={"pad": "x" * 150})

    def applied(self, saga: str, step: str, epoch: int = 1) -> None:
        self.intent(saga, step, epoch)
        inverse = {"handler": "refund", "kwargs": {"what": step}}
        self.write(Ev.STEP_COMMITTED, saga, step, epoch, result=step, inverse=inverse)

    def undone(self, saga: str, step: str, epoch: int = 1) -> None:
        inverse = {"handler": "refund", "kwargs": {"what": step}}
        self.write(Ev.STEP_COMPENSATING, saga, step, epoch, attempt=1, inverse=inverse)
        self.write(Ev.STEP_COMPENSATED, saga, step, epoch, by="inverse")

    def claim(self, saga: str, epoch: int, cuts: dict[str, int]) -> None:
        named = {writer: {"seq": seq, "hash": ""} for writer, seq in cuts.items()}
        self.write(Ev.SAGA_CLAIM, saga, epoch=epoch, reason="undo", by="x", cuts=named)

    def whole(self, saga: str, *steps: str, key: str | None = None) -> None:
        """A saga that is begun, acts, and is committed."""
        self.begin(saga, key=key)
        for step in steps or ("a",):
            self.applied(saga, step)
        self.write(Ev.SAGA_COMMITTED, saga, unsettled=[], counts={})

    def sync(self) -> None:
        self.wal.barrier_sync()

    def close(self) -> None:
        self.wal.close()

    def kill(self) -> None:
        """End as a killed process does: what was written stays, nothing is tidied up."""
        with contextlib.suppress(WALError, SimulatedCrash):
            self.wal.drain()
        self.port.crash()
        with contextlib.suppress(BaseException):
            self.port.stat("/")
        self.port.let_go()
        _logs.discard(self.wal)  # a killed process closes nothing at its exit, and forks no more
        _fork_aware.discard(self.wal)


def readable(path: Path) -> tuple[dict[str, list[bytes]], list[Damage]]:
    """Every saga's records, byte for byte, and what cannot be read; the chain is checked."""
    sagas: dict[str, list[bytes]] = {}
    damages: list[Damage] = []
    for found in scan_log(path, verify=True):
        if isinstance(found, Record):
            if found.saga:
                sagas.setdefault(found.saga, []).append(found.writer.encode() + line_of(found))
        else:
            damages.append(found)
    return sagas, damages


def settled(path: Path, sagas: list[str]) -> set[str]:
    """Those of the sagas that recovery has nothing left to do about."""
    found = {saga: look(path, saga) for saga in sagas}
    return {saga for saga, one in found.items() if one is not None and one.settled}


def broken(damages: list[Damage]) -> list[Damage]:
    return [damage for damage in damages if damage.kind != "torn-tail"]
