"""A process that runs small sagas and is killed, in children that it forks.

    python victim.py calls FOLDER FAILS ASYNC FIRST LAST     ends at every one of these calls
    python victim.py kills FOLDER SEED COUNT                 is killed at random moments

Every child has a folder of its own with a log and the file `events`, in which each effect is noted
at once, as a line `saga what step durable`. The file survives the process, as a real world does.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from faults.small_saga import Happened, QuickPort, SmallSaga

from agent_saga import FileWAL, current_saga
from agent_saga_testing.faults import FaultyPort

ENDED = 0
KILLED = 77


def noting(folder: Path) -> Callable[[Happened], None]:
    """Return what notes an event in the folder's file."""
    fd = os.open(folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sagas: list[str] = []

    def note(event: Happened) -> None:
        saga = current_saga()
        if saga is not None:
            sagas[:] = [saga.id]
        os.write(fd, f"{sagas[0]} {event.what} {event.step} {event.durable}\n".encode())

    return note


def in_child(work: Callable[[], None]) -> int:
    """Fork, do the work in the child, and return the child's process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = ENDED
    finally:
        os._exit(code)


def at_every_call(folder: Path, fails: bool, is_async: bool, first: int, last: int) -> None:
    for nth in range(first, last + 1):
        place = folder / str(nth)
        place.mkdir()
        port = FaultyPort(QuickPort())
        port.crash(nth=nth, exit_code=KILLED)
        saga = SmallSaga(place / "log", port, fails=fails)
        saga.world.on_event = noting(place)
        child = in_child(lambda saga=saga: _to_its_end(saga, is_async))
        _, status = os.waitpid(child, 0)
        (place / "code").write_text(str(os.waitstatus_to_exitcode(status)))


def _to_its_end(saga: SmallSaga, is_async: bool) -> None:
    saga.run(is_async=is_async)
    saga.close()


def at_random(folder: Path, seed: int, count: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        place = folder / str(number)
        place.mkdir()
        child = in_child(lambda place=place: _for_ever(place))
        while not (place / "events").exists():
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _for_ever(place: Path) -> None:
    note = noting(place)
    turn = 0
    wal = FileWAL(place / "log")
    starter = os.getppid()
    while os.getppid() == starter:  # else nobody is left to kill it
        turn += 1
        saga = SmallSaga(place / "log", wal, fails=bool(turn % 2))
        saga.world.on_event = note
        saga.run(is_async=bool(turn % 4 < 2))


if __name__ == "__main__":
    kind, where, *rest = sys.argv[1:]
    if kind == "calls":
        fails_, async_, first_, last_ = rest
        at_every_call(Path(where), fails_ == "1", async_ == "1", int(first_), int(last_))
    else:
        at_random(Path(where), int(rest[0]), int(rest[1]))
