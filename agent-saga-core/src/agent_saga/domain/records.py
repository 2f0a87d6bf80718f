"""The records of the log: their names, what each needs before the program goes on, and their form.

Rules of this part:

- A record is an envelope (`fmt seq mark t ev saga ep step gen`), a payload and the chain's fields.
  Envelope ids are opaque; names, keys, labels and arguments stand in the payload, which can be
  erased.
- `Need.DURABLE`: synced before the program goes on. `Need.HANDED`: in the operating system's hands
  before the program goes on, so that a killed process loses nothing.
- Only announcements (`INTENTS`) may be refused when the log cannot keep up or has no room; whatever
  tells how something ended has its room reserved and is never refused.
- Times are whole microseconds since the epoch, for display only; a saga's order is (epoch,
  sequence).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

FORMAT: Final = 1
"""The format version that this release writes; it reads this one and the one before."""


class Need(Enum):
    """What a record needs before the program may go on."""

    HANDED = "~"
    DURABLE = "!"


class Ev:
    """The names of the events, as they stand in the log."""

    WRITER_OPEN: Final = "WRITER_OPEN"
    WRITER_CLOSE: Final = "WRITER_CLOSE"
    SEGMENT_SEAL: Final = "SEGMENT_SEAL"
    MARK: Final = "MARK"
    COMPACTED: Final = "COMPACTED"

    SAGA_BEGIN: Final = "SAGA_BEGIN"
    SAGA_CLAIM: Final = "SAGA_CLAIM"
    SAGA_SUSPENDED: Final = "SAGA_SUSPENDED"
    SAGA_RESUMED: Final = "SAGA_RESUMED"
    SAGA_RELEASED: Final = "SAGA_RELEASED"
    SAGA_UNWINDING: Final = "SAGA_UNWINDING"
    SAGA_COMMITTED: Final = "SAGA_COMMITTED"
    SAGA_ROLLED_BACK: Final = "SAGA_ROLLED_BACK"
    SAGA_UNDONE_TO: Final = "SAGA_UNDONE_TO"
    SAGA_PARTIAL: Final = "SAGA_PARTIAL"
    SAGA_STUCK: Final = "SAGA_STUCK"
    SAGA_REOPENED: Final = "SAGA_REOPENED"
    SAGA_CLOSED: Final = "SAGA_CLOSED"

    SCOPE_OPEN: Final = "SCOPE_OPEN"
    SCOPE_CLOSED: Final = "SCOPE_CLOSED"

    STEP_REFUSED: Final = "STEP_REFUSED"
    STEP_INTENT: Final = "STEP_INTENT"
    STEP_ATTEMPT: Final = "STEP_ATTEMPT"
    STEP_COMMITTED: Final = "STEP_COMMITTED"
    STEP_NOT_APPLIED: Final = "STEP_NOT_APPLIED"
    STEP_UNKNOWN: Final = "STEP_UNKNOWN"
    STEP_LATE: Final = "STEP_LATE"
    STEP_COMPENSATING: Final = "STEP_COMPENSATING"
    STEP_COMPENSATED: Final = "STEP_COMPENSATED"
    STEP_COMPENSATION_NOT_APPLIED: Final = "STEP_COMPENSATION_NOT_APPLIED"
    STEP_COMPENSATION_UNKNOWN: Final = "STEP_COMPENSATION_UNKNOWN"
    STEP_COMPENSATION_FAILED: Final = "STEP_COMPENSATION_FAILED"
    STEP_ORPHANED: Final = "STEP_ORPHANED"
    STEP_UNRESOLVED: Final = "STEP_UNRESOLVED"
    STEP_KEPT: Final = "STEP_KEPT"
    STEP_CLOSED: Final = "STEP_CLOSED"

    APPROVAL_ASKED: Final = "APPROVAL_ASKED"
    APPROVAL_DECIDED: Final = "APPROVAL_DECIDED"
    APPROVAL_EXPIRED: Final = "APPROVAL_EXPIRED"

    SWITCH_HALTED: Final = "SWITCH_HALTED"
    SWITCH_LIFTED: Final = "SWITCH_LIFTED"
    QUARANTINE_SET: Final = "QUARANTINE_SET"
    QUARANTINE_LIFTED: Final = "QUARANTINE_LIFTED"
    CIRCUIT_OPENED: Final = "CIRCUIT_OPENED"
    CIRCUIT_PROBED: Final = "CIRCUIT_PROBED"
    CIRCUIT_CLOSED: Final = "CIRCUIT_CLOSED"


INTENTS: Final = frozenset({Ev.STEP_INTENT})
"""The records that may be refused (backpressure, no room): nothing has happened yet."""

BESIDE: Final = frozenset(
    {Ev.STEP_REFUSED, Ev.APPROVAL_ASKED, Ev.APPROVAL_DECIDED, Ev.APPROVAL_EXPIRED}
)
"""The records that tell of a step and change no state of it: nothing of it has happened yet."""

OBSERVATIONS: Final = frozenset({*BESIDE, Ev.STEP_ATTEMPT, Ev.MARK})
"""The records that tell something no decision rests on."""

NEEDS: Final[dict[str, Need]] = {
    Ev.WRITER_OPEN: Need.HANDED,
    Ev.WRITER_CLOSE: Need.DURABLE,
    Ev.SEGMENT_SEAL: Need.DURABLE,
    Ev.MARK: Need.HANDED,
    Ev.COMPACTED: Need.DURABLE,
    Ev.SAGA_BEGIN: Need.HANDED,
    Ev.SAGA_CLAIM: Need.DURABLE,
    Ev.SAGA_SUSPENDED: Need.DURABLE,
    Ev.SAGA_RESUMED: Need.HANDED,
    Ev.SAGA_RELEASED: Need.HANDED,
    Ev.SAGA_UNWINDING: Need.DURABLE,
    Ev.SAGA_COMMITTED: Need.DURABLE,
    Ev.SAGA_ROLLED_BACK: Need.DURABLE,
    Ev.SAGA_UNDONE_TO: Need.DURABLE,
    Ev.SAGA_PARTIAL: Need.DURABLE,
    Ev.SAGA_STUCK: Need.DURABLE,
    Ev.SAGA_REOPENED: Need.DURABLE,
    Ev.SAGA_CLOSED: Need.DURABLE,
    Ev.SCOPE_OPEN: Need.HANDED,
    Ev.SCOPE_CLOSED: Need.HANDED,
    Ev.STEP_REFUSED: Need.HANDED,
    Ev.STEP_INTENT: Need.DURABLE,
    Ev.STEP_ATTEMPT: Need.HANDED,
    Ev.STEP_COMMITTED: Need.HANDED,
    Ev.STEP_NOT_APPLIED: Need.HANDED,
    Ev.STEP_UNKNOWN: Need.HANDED,
    Ev.STEP_LATE: Need.HANDED,
    Ev.STEP_COMPENSATING: Need.DURABLE,
    Ev.STEP_COMPENSATED: Need.DURABLE,
    Ev.STEP_COMPENSATION_NOT_APPLIED: Need.HANDED,
    Ev.STEP_COMPENSATION_UNKNOWN: Need.DURABLE,
    Ev.STEP_COMPENSATION_FAILED: Need.DURABLE,
    Ev.STEP_ORPHANED: Need.HANDED,
    Ev.STEP_UNRESOLVED: Need.HANDED,
    Ev.STEP_KEPT: Need.HANDED,
    Ev.STEP_CLOSED: Need.DURABLE,
    Ev.APPROVAL_ASKED: Need.HANDED,
    Ev.APPROVAL_DECIDED: Need.HANDED,
    Ev.APPROVAL_EXPIRED: Need.HANDED,
    Ev.SWITCH_HALTED: Need.DURABLE,
    Ev.SWITCH_LIFTED: Need.DURABLE,
    Ev.QUARANTINE_SET: Need.DURABLE,
    Ev.QUARANTINE_LIFTED: Need.DURABLE,
    Ev.CIRCUIT_OPENED: Need.HANDED,
    Ev.CIRCUIT_PROBED: Need.HANDED,
    Ev.CIRCUIT_CLOSED: Need.HANDED,
}
