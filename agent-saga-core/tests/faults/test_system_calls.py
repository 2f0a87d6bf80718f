"""Every system call of a small saga fails, comes up short, hangs or is its last, once each."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.small_saga import WAY_NAMES, WAYS, QuickPort, SmallSaga, judged

from agent_saga_testing.faults import FOR_EVER, FaultyPort

pytestmark = pytest.mark.timeout(600)
Strike = Callable[[FaultyPort, str, int], object]
STALL = 0.05


def fail(error: int, *, times: int = 1, after: bool = False) -> Strike:
    def strike(port: FaultyPort, name: str, nth: int) -> None:
        port.fail(name, nth=nth, error=error, times=times, after=after)

    return strike


def shorten(port: FaultyPort, name: str, nth: int) -> None:
    port.shorten(name, nth=nth, keep=7)


FAULTS: dict[str, tuple[Strike, tuple[str, ...]]] = {
    "EIO": (fail(errno.EIO), ()),
    "EIO, and the answer lost": (
        fail(errno.EIO, after=True),
        ("pwrite", "fdatasync", "fsync", "replace", "mkdir", "unlink", "ftruncate", "close"),
    ),
    "EIO from then on": (fail(errno.EIO, times=FOR_EVER), ()),
    "ENOSPC": (fail(errno.ENOSPC), ("open", "pwrite", "fallocate", "mkdir", "fsync")),
    "ENOSPC from then on": (
        fail(errno.ENOSPC, times=FOR_EVER),
        ("open", "pwrite", "fallocate", "mkdir"),
    ),
    "short": (shorten, ("pwrite",)),
}


def calls_of(folder: Path, *, fails: bool, is_async: bool) -> dict[str, int]:
    """How often the saga makes each system call when nothing fails."""
    port = FaultyPort(QuickPort())
    saga = SmallSaga(folder / "without", port, fails=fails).run(is_async=is_async)
    saga.close()
    saga.judge()
    assert saga.world.standing == (frozenset() if fails else {1, 2, 3})
    return {name: port.count(name) for name in {call.name for call in port.calls}}


def places(counts: dict[str, int], names: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    """Every call that a fault can strike."""
    for name in sorted(counts):
        if not names or name in names:
            for nth in range(1, counts[name] + 1):
                yield name, nth


@pytest.mark.property
@pytest.mark.parametrize(("fails", "is_async"), WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_call(tmp_path, fault, fails, is_async):
    strike, names = FAULTS[fault]
    counts = calls_of(tmp_path, fails=fails, is_async=is_async)
    struck = 0
    for name, nth in places(counts, names):
        port = FaultyPort(QuickPort())
        strike(port, name, nth)
        path = tmp_path / f"{name}-{nth}"
        saga = SmallSaga(path, port, fails=fails).run(is_async=is_async)
        saga.close()
        port.heal()
        port.let_go()
        judged(saga, f"{fault} at {name} {nth}")
        struck += port.count(name) >= nth
    assert struck


@pytest.mark.property
@pytest.mark.parametrize(("fails", "is_async"), WAYS, ids=WAY_NAMES)
def test_a_hang_at_every_call(tmp_path, fails, is_async):
    """A call that does not come back keeps nobody longer than it itself hangs."""
    for name, nth in places(calls_of(tmp_path, fails=fails, is_async=is_async)):
        port = FaultyPort(QuickPort())
        hang = port.hang(name, nth=nth)
        release = threading.Thread(target=_release_later, args=(hang,))
        release.start()
        path = tmp_path / f"{name}-{nth}"
        saga = SmallSaga(path, port, fails=fails, stall_after=STALL).run(is_async=is_async)
        saga.close()
        hang.release()
        hang.reached.set()
        release.join()
        port.heal()
        saga.close()
        judged(saga, f"a hang at {name} {nth}")


def _release_later(hang) -> None:
    hang.reached.wait()
    time.sleep(2 * STALL)
    hang.release()
