"""When `saga-recoveryd` compacts: after a pass, and seldom.

Rules of this part:

- The first time comes soon after the start, so that a service that is restarted every day compacts
  all the same; after that, once in every period.
- What is refused or fails is logged, and tried again a period later; recovery goes on in any case.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agent_saga.domain.durations import seconds
from agent_saga.errors import AgentSagaError
from agent_saga.observe.logger import logger

if TYPE_CHECKING:
    from agent_saga.runtime.daemon import RecoveryDaemon

__all__ = ["Schedule"]

_SOON = 600.0

log = logger("agent_saga.recovery")


class Schedule:
    """Compacts a log now and then.

    Args:
        daemon: over the log.
        every: seconds between two compactions; 0 never compacts.
    """

    def __init__(self, daemon: RecoveryDaemon, every: float) -> None:
        self._daemon = daemon
        self._every = seconds("--compact-every", every, zero=True)
        self._due = time.monotonic() + min(_SOON, every)

    def after_a_pass(self) -> None:
        """Compact if it is time; never raises for what is wrong with the log."""
        if not self._every or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._every
        try:
            done = self._daemon.compact()
        except AgentSagaError as error:
            log.warning("the log was not compacted: %s", error)
        except Exception:
            log.exception("the log was not compacted")
        else:
            log.info(
                "compacted: %d settled sagas taken out, %d bytes fewer", done.sagas, done.bytes
            )
            for reason in done.kept:
                log.warning("nothing leaves the log: %s", reason)
