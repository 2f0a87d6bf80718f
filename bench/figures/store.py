"""The SQLite state store, beside a synced write and beside SQLite without the store.

What a transaction over one small document costs, for limits and for approvals; the group `limits`
measures whole steps.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from agent_saga.state.base import Change, Docs
from agent_saga.state.sqlite import SQLiteStateStore
from bench import floors
from bench.measure import Effort, Figure, interleaved, p50
from bench.workload import place

GROUP = "state"


def figures(effort: Effort) -> list[Figure]:
    """Measure the group."""
    calls = int(40 * effort.calls)
    with place() as folder, floors.synced_file(folder) as file:
        store = SQLiteStateStore(Path(folder, "state.sqlite"))
        bare = {
            level: floors.database(str(Path(folder, f"{level}.sqlite")), level)
            for level in ("NORMAL", "FULL")
        }
        samples = interleaved(
            {
                "F": lambda: p50(file.line, calls, floor=True),
                "processed": lambda: p50(_transact(store, durable=False), calls),
                "bare processed": lambda: p50(_bare(bare["NORMAL"]), calls),
                "durable": lambda: p50(_transact(store, durable=True), calls),
                "bare durable": lambda: p50(_bare(bare["FULL"]), calls),
            },
            effort.rounds,
            ("F",),
        )
        store.close()
        for connection in bare.values():
            connection.close()
    return [
        Figure(
            GROUP,
            "transact, survives the process (as a limit)",
            samples.ratio("processed", "F"),
            "F",
            0.68,
            prototype="0.55",
            detail=samples.microseconds("processed", "bare processed", "F"),
        ),
        Figure(
            GROUP,
            "transact, durable (as an approval)",
            samples.ratio("durable", "F"),
            "F",
            1.75,
            prototype="1.42",
            detail=samples.microseconds("durable", "bare durable", "F"),
        ),
    ]


def _count(docs: Docs) -> Change[int]:
    number = (docs["n"] or {"n": 0})["n"] + 1
    return Change(number, {"n": {"n": number}})


def _transact(store: SQLiteStateStore, *, durable: bool) -> Callable[[], object]:
    return lambda: store.transact(["n"], _count, durable=durable)


def _bare(connection: sqlite3.Connection) -> Callable[[], object]:
    def update() -> None:
        connection.execute("BEGIN IMMEDIATE")
        found = connection.execute("SELECT body FROM doc WHERE key = 'n'").fetchone()
        number = 1 if found is None else int(found[0]) + 1
        connection.execute("INSERT OR REPLACE INTO doc VALUES ('n', ?)", (number,))
        connection.execute("COMMIT")

    return update
