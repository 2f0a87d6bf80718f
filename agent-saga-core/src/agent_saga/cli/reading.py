"""Reading a log for the commands: sagas, places that cannot be read, one saga's records.

Rules of this part:

- Reading makes nothing and changes nothing, and works while the agent writes.
- Memory grows with the sagas, not with the records; only the records of sagas that several writers
  wrote about are held together.
- A place that had been durable and cannot be read is told with every answer, and makes it not
  clean. The torn end of a writer is told too; a writer that is still writing shows one, so it is no
  fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.cli.output import printable
from agent_saga.domain import identity
from agent_saga.domain.fold import fold, resolve
from agent_saga.wal.damage import Damage
from agent_saga.wal.format import Record
from agent_saga.wal.reader import scan_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from agent_saga.domain.views import SagaView

__all__ = ["LogView", "damage_text", "handlers_needed", "read_log", "records_of"]

_TORN: Final = "torn-tail"


class LogView:
    """What a log says.

    Attributes:
        path: where it is.
        sagas: every saga by id, in the order of their first records.
        damages: the places that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damages: list[Damage] = []
        self.sagas: dict[str, SagaView] = fold(self._records())
        self._resolve([saga.id for saga in self.sagas.values() if saga.contested])

    @property
    def broken(self) -> bool:
        """Whether something is missing that had been durable, or that this version cannot read."""
        return any(damage.kind != _TORN for damage in self.damages)

    def find(self, wanted: str) -> list[SagaView]:
        """Return the sagas that a person may mean.

        Args:
            wanted: an id, the `saga_id` that the program gave, a name, or the beginning of an id.
        """
        exact = self.sagas.get(wanted) or self.sagas.get(identity.saga_id_of(wanted))
        if exact is not None:
            return [exact]
        by_name = [saga for saga in self.sagas.values() if saga.name == wanted]
        return by_name or [saga for saga in self.sagas.values() if saga.id.startswith(wanted)]

    def _resolve(self, contested: list[str]) -> None:
        """Read the log again for the sagas that several writers wrote about."""
        found: dict[str, list[Record]] = {saga: [] for saga in contested}
        for record in scan_log(self.path) if contested else ():
            if isinstance(record, Record) and record.saga in found:
                found[record.saga].append(record)
        self.sagas |= {saga: resolve(saga, records) for saga, records in found.items()}

    def _records(self) -> Iterator[Record]:
        for found in scan_log(self.path):
            if isinstance(found, Damage):
                self.damages.append(found)
            else:
                yield found


def read_log(path: Path) -> LogView:
    """Read a whole log.

    Raises:
        WALPathError, WALFormatError: the folder as a whole is no log that can be read.
    """
    return LogView(path)


def records_of(path: Path, saga: str) -> list[Record]:
    """Return one saga's records in the order (epoch, sequence)."""
    found = [one for one in scan_log(path) if isinstance(one, Record) and one.saga == saga]
    return sorted(found, key=lambda record: (record.epoch, record.writer, record.seq))


def handlers_needed(sagas: Iterable[SagaView]) -> dict[str, list[str]]:
    """Return, for each handler that undoing may still need, the ids of those sagas."""
    needed: dict[str, list[str]] = {}
    for saga in sagas:
        for name in sorted(saga.handlers_needed()):
            needed.setdefault(name, []).append(saga.id)
    return needed


def damage_text(damages: Iterable[Damage]) -> list[str]:
    """Return one line for each place that cannot be read."""
    return [
        f"{'Note' if d.kind == _TORN else 'DAMAGE'}: writer {printable(d.writer)}, "
        f"{printable(d.segment)}, sequence {d.seq}, byte {d.offset}: {printable(d.reason)}"
        for d in damages
    ]
