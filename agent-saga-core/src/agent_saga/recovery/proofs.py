"""Is what a saga's records say proved? Nothing is undone, resumed or retried from others.

Rules of this part:

- The records of a saga are read once more, each writer's against its chain, from the saga's first
  record to the writer's end: whoever changes one, takes one out or puts one in breaks the chain
  there or behind it. What is found counts like any other damage: the saga is a human's case.
- The records that are acted on are those that were read so. What was proved of a log that has not
  changed since is not read again.
- A claim names the last record that it had read of each writer; another one in its place was
  changed since.
- What the state store knows of a saga and the log has lost is a problem of its records too, where
  the store can be asked (see `losses`).
- Heads are not signed: a log that was rewritten to its end is not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from agent_saga.domain.effective import facts_of
from agent_saga.domain.records import Ev
from agent_saga.errors import StateError
from agent_saga.recovery.losses import lost
from agent_saga.recovery.survey import Found, Survey, look
from agent_saga.recovery.vanished import KnownSagas, Vanished
from agent_saga.state.document import Doc
from agent_saga.wal.damage import Damage, broken
from agent_saga.wal.format import Record
from agent_saga.wal.os_port import OsPort
from agent_saga.wal.proof import UNATTESTED, Proof, attested, proof_of
from agent_saga.wal.takeover import LogState, has_left, log_state
from agent_saga.wal.view import View

__all__ = ["Proofs"]


class Proofs:
    """Proves sagas, and remembers which logs were read for it and have not changed since.

    Args:
        known: the sagas as the state store knows them; nothing is known of losses without it.
    """

    def __init__(self, known: KnownSagas | None = None) -> None:
        self._sagas = known
        self._vanished = None if known is None else Vanished(known)
        self._known: dict[str, Proof] = {}
        self._from: dict[str, int] = {}
        self._attested: set[tuple[str, str]] = set()

    def expect(self, sagas: Iterable[Found]) -> None:
        """Say which sagas will be asked about, so that a writer is read once for all of them."""
        lowest: dict[str, int] = {}
        for saga in sagas:
            for writer, seq in saga.firsts.items():
                lowest[writer] = min(seq, lowest.get(writer, seq))
        self._from = lowest
        self._known = {w: proof for w, proof in self._known.items() if w in lowest}

    def proved(self, path: str, found: Found, port: OsPort | None = None) -> Found:
        """Return a saga as its chains tell it; what is wrong with them is among its problems.

        Args:
            path: the log's directory.
            found: the saga, as it was read before.
            port: the system calls.

        Raises:
            WALError: the directory as a whole is no log that can be read.
        """
        port = OsPort() if port is None else port
        if found.vanished:
            return found
        now = self._proved(path, found, port)
        if self._sagas is None:
            return now
        try:
            doc = self._sagas.claim(found.id)
        except StateError as error:
            now.lost = f"what the state store knows of it cannot be read: {error.message}"
            return now
        if self._lost(path, now, doc, port):
            # It may have ended between the two looks: what the log says after the store counts.
            again = look(path, found.id)
            now = self._proved(path, found if again is None else again, port)
            now.lost = self._lost(path, now, doc, port)
        return now

    def vanished(self, path: str, there: Collection[str]) -> list[Found]:
        """Return the sagas of which the log has lost everything.

        Args:
            path: the log's directory.
            there: sagas of which the log tells.

        Raises:
            StateError: the state store cannot be read.
            WALError: the directory as a whole is no log that can be read.
        """
        if self._vanished is None:
            return []
        return self._vanished.beside(path, there, lambda w: self.is_whole(path, w, OsPort()))

    def add_vanished(self, path: str, seen: Survey) -> str:
        """Add the sagas of which the log has lost everything to what was seen of it.

        Returns:
            Why nobody can tell whether there are any; empty if that is known. It stops nothing: of
            each other saga the store is asked again before it is acted on.
        """
        try:
            seen.add(self.vanished(path, seen.sagas))
        except StateError as error:
            return f"what the log has lost cannot be told: {error.message}"
        return ""

    def vanished_one(self, path: str, saga: str) -> Found | None:
        """Return a saga of which the log has lost everything; None if it is none."""
        if self._vanished is None:
            return None
        return self._vanished.one(path, saga, lambda w: self.is_whole(path, w, OsPort()))

    def _lost(self, path: str, found: Found, doc: Doc | None, port: OsPort) -> str:
        return lost(path, found, doc, port, lambda writer: self.is_whole(path, writer, port))

    def _proved(self, path: str, found: Found, port: OsPort) -> Found:
        records: list[Record] = []
        damages = list(found.damages)
        states: dict[str, LogState] = {}
        with View(port, path) as view:
            for writer, since in found.firsts.items():
                own = [record for record in found.records if record.writer == writer]
                if not has_left(path, writer, port):
                    proof = self._unchanged(path, writer, since, found, port)
                    if proof is None:
                        proof = self._read(view, path, writer, port, since, found.id)
                        own = proof.records
                    damages += proof.damages
                    damages += self._unattested(view, path, writer, port, proof, since)
                    if writer in found.complete and proof.state is not None:
                        states[writer] = proof.state
                records += own
        damages += _changed_since_read(records)
        now = Found(found.id, records, damages, states, firsts=found.firsts)
        now.proved = True
        return now

    def is_whole(self, path: str, writer: str, port: OsPort) -> bool:
        """Say whether a writer's log is as it was written, from its beginning to its end."""
        if has_left(path, writer, port):
            return True
        with View(port, path) as view:
            proof = proof_of(view, path, writer, port, since=1, saga="")
            return not broken(proof.damages) and not self._unattested(
                view, path, writer, port, proof, 1
            )

    def _unchanged(
        self, path: str, writer: str, since: int, found: Found, port: OsPort
    ) -> Proof | None:
        """Return what is known of a writer, if its log is still as it was for the saga's reader.

        It was, if it looked so before that read, or had been proved before and looks so now.
        """
        known = self._known.get(writer)
        if known is None or known.since > since or known.state is None:
            return None
        was_so = known.state == found.complete.get(writer) or known.at < found.begun
        return known if was_so and known.state == log_state(path, writer, port) else None

    def _read(
        self, view: View, path: str, writer: str, port: OsPort, since: int, saga: str
    ) -> Proof:
        since = min(since, self._from.get(writer, since))
        proof = proof_of(view, path, writer, port, since=since, saga=saga)
        self._known[writer] = replace(proof, records=[])
        return proof

    def _unattested(
        self, view: View, path: str, writer: str, port: OsPort, proof: Proof, since: int
    ) -> list[Damage]:
        """Return the files from which records left that nothing attests, behind a sequence."""
        left = [one for one in proof.gaps if one[1] >= since]
        if any((writer, digest) not in self._attested for _, _, digest in left):
            self._attested = attested(view, path, port)
        return [
            Damage(writer, name, last, 0, UNATTESTED)
            for name, last, digest in left
            if (writer, digest) not in self._attested
        ]


def _changed_since_read(records: list[Record]) -> list[Damage]:
    """Return the records in whose place a claim had read another one."""
    there = {(record.writer, record.seq): str(record.hash) for record in records}
    found = []
    for record in records:
        cuts = facts_of(record).get("cuts") if record.event == Ev.SAGA_CLAIM else None
        for writer, cut in cuts.items() if isinstance(cuts, dict) else ():
            if not isinstance(cut, dict) or type(cut.get("seq")) is not int or not cut.get("hash"):
                continue
            if there.get((writer, cut["seq"])) != cut["hash"]:
                reason = f"the claim of writer {record.writer} had read another record there"
                found.append(Damage(writer, "", cut["seq"], 0, reason))
    return found
