"""Random logs of several writers, compacted at random moments, with faults: nothing is lost.

Every survey is made twice, with a checkpoint and from the beginning, and both must agree.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

import pytest
from compaction.logs import Quick, Writer, broken, readable, settled
from compaction.test_checkpoint import seen, without_checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_saga.domain.records import Ev
from agent_saga.errors import WALError
from agent_saga.evidence.verify import verify_chain
from agent_saga.recovery.survey import survey
from agent_saga.wal import checkpoint
from agent_saga_testing.faults import SimulatedCrash

EXAMPLES = 400 if "AGENT_SAGA_FULL" in os.environ else 40

_WRITERS = st.integers(0, 2)
_ACTS = st.one_of(
    st.tuples(st.just("fill"), _WRITERS, st.integers(1, 12)),
    st.tuples(st.just("begin"), _WRITERS, st.integers(0, 5)),
    st.tuples(st.just("act"), _WRITERS, st.integers(0, 5)),
    st.tuples(st.just("end"), _WRITERS, st.integers(0, 5)),
    st.tuples(st.just("take over"), _WRITERS, st.integers(0, 5)),
    st.tuples(st.just("sync"), _WRITERS, st.just(0)),
    st.tuples(st.just("close"), _WRITERS, st.just(0)),
    st.tuples(st.just("kill"), _WRITERS, st.just(0)),
    st.tuples(st.just("survey"), _WRITERS, st.just(0)),
)
_COMPACTS = st.tuples(
    st.just("compact"),
    st.integers(0, 3),
    st.one_of(
        st.none(),
        st.tuples(st.sampled_from(["eio", "full", "crash", "late crash"]), st.integers(1, 250)),
    ),
)
_SCRIPTS = st.lists(st.one_of(_ACTS, _ACTS, _COMPACTS), min_size=8, max_size=40)


class Play:
    """A log, its writers, and the sagas that they have in hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writers: dict[int, Writer] = {}
        self.sagas: dict[int, tuple[str, Writer | None, int, str]] = {}
        self.number = 0

    def writer(self, who: int) -> Writer:
        if who not in self.writers:
            self.writers[who] = Writer(self.path, Quick())
        return self.writers[who]

    def lives(self, one: Writer | None) -> bool:
        return any(one is other for other in self.writers.values())

    def run(self, act: str, who: int, what: object) -> None:
        getattr(self, act.replace(" ", "_"))(who, what)

    def fill(self, who: int, count: int) -> None:
        for _ in range(count):
            self.number += 1
            key = f"key{self.number}" if self.number % 3 == 0 else None
            self.writer(who).whole(f"s{self.number}", key=key)

    def begin(self, who: int, slot: int) -> None:
        self.number += 1
        saga = f"held{self.number}"
        self.writer(who).begin(saga)
        self.writer(who).applied(saga, "a")
        self.sagas[slot] = (saga, self.writer(who), 1, "RUNNING")

    def act(self, who: int, slot: int) -> None:
        saga, owner, epoch, state = self.sagas.get(slot, ("", None, 0, ""))
        if self.lives(owner) and state == "RUNNING":
            self.number += 1
            owner.applied(saga, f"n{self.number}", epoch)

    def end(self, who: int, slot: int) -> None:
        saga, owner, epoch, state = self.sagas.get(slot, ("", None, 0, ""))
        if not self.lives(owner):
            return
        if state == "RUNNING":
            owner.write(Ev.SAGA_COMMITTED, saga, epoch=epoch, unsettled=[], counts={})
            self.sagas[slot] = (saga, owner, epoch, "COMMITTED")
        elif state == "UNWINDING":
            owner.undone(saga, "a", epoch)
            owner.write(Ev.SAGA_ROLLED_BACK, saga, epoch=epoch)
            del self.sagas[slot]

    def take_over(self, who: int, slot: int) -> None:
        saga, owner, epoch, state = self.sagas.get(slot, ("", None, 0, ""))
        if not saga or state == "UNWINDING" or (state == "RUNNING" and self.lives(owner)):
            return
        lines = readable(self.path)[0].get(saga, [])
        if not lines:
            return  # it left: a claimer would not find it
        cuts: dict[str, int] = {}
        for line in lines:
            writer, _, rest = line.partition(b"{")
            cuts[writer.decode()] = int(rest.split(b'"q":')[1].split(b",")[0])
        self.writer(who).claim(saga, epoch + 1, cuts)
        self.writer(who).write(Ev.SAGA_UNWINDING, saga, epoch=epoch + 1, cause="x", scope=[])
        self.sagas[slot] = (saga, self.writer(who), epoch + 1, "UNWINDING")

    def sync(self, who: int, _what: object) -> None:
        if who in self.writers:
            self.writers[who].sync()
            self.writers[who].write(Ev.MARK)

    def close(self, who: int, _what: object) -> None:
        if who in self.writers:
            self.writers.pop(who).close()

    def kill(self, who: int, _what: object) -> None:
        if who in self.writers:
            self.writers.pop(who).kill()

    def survey(self, _who: int, _what: object) -> None:
        if self.path.exists():
            survey(self.path, keep=True)

    def compact(self, who: int, fault: tuple[str, int] | None) -> None:
        compactor = self.writer(who)
        before, _ = readable(self.path) if self.path.exists() else ({}, [])
        done = settled(self.path, list(before))
        strike(compactor, fault)
        with contextlib.suppress(WALError, SimulatedCrash):
            compactor.wal.compact(grace_seconds=0)
        if compactor.port.crashed or compactor.wal._cause is not None:
            self.kill(who, None)
        else:
            compactor.port.heal()
        self.check(before, done)

    def check(self, before: dict[str, list[bytes]], done: set[str]) -> None:
        """What was not settled is as it was; what was is there as a whole, or not at all."""
        sagas, damages = readable(self.path) if self.path.exists() else ({}, [])
        assert broken(damages) == []
        for saga, lines in before.items():
            assert sagas.get(saga) == lines or (saga in done and saga not in sagas)
        found = seen(survey(self.path))
        assert found == without_checkpoint(self.path)
        assert not [one for one in found[0].values() if one[2]]

    def finish(self) -> None:
        """At the end everybody is gone, and all that is settled leaves."""
        for who in list(self.writers):
            self.close(who, None)
        before, _ = readable(self.path) if self.path.exists() else ({}, [])
        done = settled(self.path, list(before))
        self.compact(3, None)
        for who in list(self.writers):
            self.close(who, None)
        left = set(readable(self.path)[0]) if self.path.exists() else set()
        assert left == set(before) - done
        assert not self.path.exists() or verify_chain(self.path)


def strike(compactor: Writer, fault: tuple[str, int] | None) -> None:
    kind, nth = fault or ("", 0)
    if kind == "eio":
        compactor.port.fail("pread", nth=nth, error=errno.EIO)
        compactor.port.fail("fsync", nth=1 + nth % 7, error=errno.EIO)
    elif kind == "full":
        compactor.port.fail("pwrite", nth=1 + nth % 9, error=errno.ENOSPC, times=3)
    elif kind:
        compactor.port.crash(nth=nth, after=kind.startswith("late"))


@pytest.mark.timeout(1800)
@pytest.mark.property
@pytest.mark.guarantee("COMPACT-2")
@given(script=_SCRIPTS)
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
def test_random_logs_keep_what_is_not_settled(script):
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_saga.wal.segments.FIRST_SIZE", 4096)
        patch.setattr("agent_saga.wal.segments.LAST_SIZE", 4096)
        patch.setattr(checkpoint, "WORTH", 1)
        patch.setattr(checkpoint, "is_recent", lambda changed: False)
        play = Play(Path(root, "log"))
        for act in script:
            play.run(*act)
        play.finish()
