"""The last record of a process that died was changed: nobody is told that all is undone.

What was written whole was announced, and its effect may stand. Only what a sudden end can leave
behind a log is passed over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent_saga.recovery.queue import cases_in

PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path
    from agent_saga import AgentKit

    kit = AgentKit("k", wal="log")

    def note(line):
        with Path("world.txt").open("a") as file:
            print(line, file=file)

    def die(where):
        if sys.argv[-1] == where:
            os.kill(os.getpid(), signal.SIGKILL)

    @kit.tool("COMPENSABLE")
    def book(n: int) -> int:
        return n

    @book.undo
    def cancel(result):
        note("cancelled")

    @kit.tool("COMPENSABLE")
    def charge(n: int) -> int:
        note("charged")
        die("effect")
        return n

    @charge.undo
    def refund(result):
        note("refunded")
        die("inverse")

    if __name__ == "__main__":
        with kit.transaction():
            book(1)
            charge(1)
            raise RuntimeError
    """
)


class Shop:
    """A program that dies where it is told to, and its log."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "shop.py").write_text(PROGRAM)

    def python(self, *words: str) -> int:
        environ = {**os.environ, "AGENT_SAGA_SETTLE_AFTER": "0"}
        done: Any = subprocess.run(
            [sys.executable, *words],
            cwd=self.place,
            env=environ,
            check=False,
            capture_output=True,
        )
        return int(done.returncode)

    def dies_in(self, where: str) -> None:
        assert self.python("shop.py", where) == -signal.SIGKILL

    def recover(self) -> int:
        words = ("recover", "--wal-path", "log", "--import", "shop")
        return self.python("-m", "agent_saga.cli", *words)

    def change_last_line(self, how: Any) -> bytes:
        [segment] = [f for f in self.place.rglob("seg-*.jsonl") if f.read_bytes().strip(b"\0")]
        whole = segment.read_bytes()
        written = len(whole.rstrip(b"\0"))
        start = whole.rindex(b"\n", 0, written - 1) + 1
        line = whole[start:written]
        segment.write_bytes(whole[:start] + how(line) + whole[written:])
        return line

    @property
    def world(self) -> list[str]:
        return (self.place / "world.txt").read_text().split()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def spoilt(line: bytes) -> bytes:
    return line.replace(b'"q":', b'"Q":', 1)


@pytest.mark.guarantee("TAIL-1")
@pytest.mark.parametrize(
    ("where", "last"), [("effect", b"STEP_INTENT"), ("inverse", b"STEP_COMPENSATING")]
)
def test_a_changed_byte_in_the_last_record_is_a_humans_case(
    shop: Shop, where: str, last: bytes
) -> None:
    shop.dies_in(where)
    before = shop.world
    assert last in shop.change_last_line(spoilt)
    assert shop.recover() == 1
    assert shop.world == before, "nothing is run of a log that was changed"
    assert len(cases_in(str(shop.place / "log"))) == 1


def test_an_announcement_that_was_cut_short_was_none(shop: Shop) -> None:
    """Nothing was done of what it announces; the rest is undone."""
    shop.dies_in("inverse")
    (shop.place / "world.txt").write_text("charged\n")  # as if the inverse had not begun
    shop.change_last_line(lambda line: line[:150] + bytes(len(line) - 150))
    assert shop.recover() == 0
    assert shop.world == ["charged", "refunded", "cancelled"]
