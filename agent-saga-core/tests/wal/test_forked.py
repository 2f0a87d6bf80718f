"""What a forked child does with the logs of its parent."""

from __future__ import annotations

import os

import pytest

from agent_saga.errors import SagaForked
from agent_saga.wal.os_port import OsPort


class Stubborn(OsPort):
    """A port that closes nothing in a forked child."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def close(self, fd: int) -> None:
        if os.getpid() != self.pid:
            raise RuntimeError("not closed")
        super().close(fd)


def ends_well(check) -> bool:
    """Whether a check passes in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_log_that_cannot_be_let_go_of_keeps_no_other_from_being_left_to_the_parent(open_log):
    logs = [open_log(port=Stubborn()), *(open_log() for _ in range(8)), open_log(port=Stubborn())]
    for log in logs:
        log.append("STEP_INTENT")

    def check() -> None:
        for log in logs:
            with pytest.raises(SagaForked):
                log.check_fence("saga", 1)

    assert ends_well(check)
