"""A log of a million records, ten sagas of it open: surveying it for recovery, and verifying it.

Measured in a process of its own, in CPU seconds for a million records and in memory above what the
imports take; the log is written as a process that committed its sagas and died leaves it. These
bars are seconds, not ratios: they say something on a machine like the one that they were set on.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from agent_saga.domain.records import Ev
from agent_saga.evidence.verify import verify_chain
from agent_saga.recovery.survey import survey
from agent_saga.wal.directory import WRITERS, make_log_directory
from agent_saga.wal.encoding import masked
from agent_saga.wal.format import Entry, Salts, first_hash, stamped
from agent_saga.wal.lock import LOCK_FILE
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.segments import segment_name, segment_size
from agent_saga.wal.takeover import dead_writers
from agent_saga.wal.writer import new_writer_id
from bench.measure import Effort, Figure
from bench.workload import place

GROUP = "long logs"
OPEN = 10
MILLION = 1_000_000
_BATCH = 100
_TIME = 1_700_000_000_000_000

Measured = dict[str, tuple[float, float]]
"""CPU seconds and mebibytes, by case."""


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    records = effort.sagas * 10
    with place() as folder:
        path = Path(folder, "long")
        write_log(path, records)
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=measure, args=(theirs, str(path))
        )
        process.start()
        found: Measured = ours.recv()
        process.join()
    cases = [
        ("survey, checkpoint", 0.3, 32.0, "0.07 s", False),
        ("survey, full scan", 2.5, 64.0, "1.0-1.4 s", True),
        ("verify", 8.0, 64.0, "3.3-6.4 s", True),
    ]
    return [one for case in cases for one in _pair(found, records, *case)]


def _pair(
    found: Measured, records: int, name: str, seconds: float, room: float, told: str, grows: bool
) -> list[Figure]:
    cpu, memory = found[name]
    scaled = cpu * MILLION / records if grows else cpu
    detail = f"{records:,} records, {OPEN} open: {cpu:.3f} s"
    return [
        Figure(GROUP, f"{name}, CPU", scaled, "s", seconds, prototype=told, detail=detail),
        Figure(GROUP, f"{name}, memory", memory, "MiB", room, prototype="flat"),
    ]


def measure(pipe: Connection, path: str) -> None:
    """Measure all cases on one log, and send what they took."""
    dead = dead_writers(path)
    found: Measured = {}
    for name in ("survey, full scan", "survey, checkpoint"):
        before, began = _memory(), time.process_time()
        sagas = survey(path, dead=dead, keep=name.endswith("scan")).sagas
        found[name] = time.process_time() - began, _memory() - before
        if len(sagas) != OPEN:
            raise RuntimeError(f"{len(sagas)} sagas were found open")
    before, began = _memory(), time.process_time()
    if not verify_chain(path):
        raise RuntimeError("the log is not intact")
    found["verify"] = time.process_time() - began, _memory() - before
    pipe.send(found)


def _memory() -> float:
    """Return the peak of the resident memory in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


# --- the log --------------------------------------------------------------------------------------


def write_log(path: Path, records: int) -> None:
    """Write the log of one dead writer, as quickly as it goes."""
    make_log_directory(OsPort(), str(path), force=True)
    writer = new_writer_id()
    folder = path / WRITERS / writer
    folder.mkdir()
    (folder / LOCK_FILE).touch()
    chain, number, size = (0, first_hash(writer)), 1, 0
    salts = Salts()
    out = (folder / segment_name(number)).open("wb")
    for entries in _batches(records):
        mark, lines = chain[0], []
        for entry in entries:
            line, chain = stamped(entry, chain, mark, salts)
            lines.append(line)
        data = b"".join(lines)
        if size + len(data) > segment_size(number):
            out.close()
            number, size = number + 1, 0
            out = (folder / segment_name(number)).open("wb")
        out.write(data)
        size += len(data)
    out.close()
    for segment in folder.glob("seg-*"):
        os.utime(segment, (_TIME / 1e6, _TIME / 1e6))  # what was written just now is not covered


def _batches(records: int) -> Iterator[list[Entry]]:
    intent = masked(
        {
            "call": {"tool": "charge", "semantics": "COMPENSABLE"},
            "nth": 1,
            "args": {"customer_id": "cus_12345678", "amount": 4200, "note": "x" * 60},
        }
    )[0]
    done = masked(
        {
            "result": {"id": "ch_1234567890", "amount": 4200},
            "inverse": {"handler": "refund", "kwargs": {"id": "ch_1234567890"}},
        }
    )[0]
    begin = masked({"about": {"name": "run", "labels": {}}, "salt": "c2FsdHNhbHRzYWx0c2E"})[0]
    commit = masked({"unsettled": [], "counts": {"COMMITTED": 1}})[0]
    sagas = records // 4
    every = max(1, sagas // OPEN)
    opening = masked({"pid": 0, "boot": "", "lock": 0})[0]
    batch: list[Entry] = [(_TIME, Ev.WRITER_OPEN, "", 0, "", 0, opening)]
    for number in range(sagas):
        saga, step = f"{number:016x}", f"s{number:021x}"
        batch += [
            (_TIME, Ev.SAGA_BEGIN, saga, 1, "", 0, begin),
            (_TIME, Ev.STEP_INTENT, saga, 1, step, 0, intent),
            (_TIME, Ev.STEP_COMMITTED, saga, 1, step, 0, done),
        ]
        if number % every or number // every >= OPEN:
            batch.append((_TIME, Ev.SAGA_COMMITTED, saga, 1, "", 0, commit))
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
