"""How a boundary behaves, as it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_saga.domain import durations
from agent_saga.domain.durations import shown
from agent_saga.domain.flags import flag
from agent_saga.engine.tool import COMMITS, one_of
from agent_saga.errors import ConfigurationError

_UNSETTLED = ("raise", "warn")
_ON_CRASH = ("undo", "hold")
BEGIN: Final = "begin"
"""As `fork_at`: before the first step."""

UNDO: Final = "undo"
KEEP: Final = "keep"
ABANDONED: Final = (UNDO, KEEP)


class BoundaryOptions:
    """How a boundary behaves.

    Attributes:
        hold: for how many seconds recovery holds the saga after a crash; None undoes it at once.
        whole: a resumed run makes the recorded calls again, from the first on; whoever says it does
            not looks after what it leaves out.

    Args:
        name: how people call it.
        labels: plain data recorded with it.
        reraise: raise the cause itself instead of `SagaAborted`.
        on_unsettled: "raise" `CommittedUnsettled`, or "warn".
        detached: an independent saga even inside another boundary.
        commit: "pipelined", or "durable" to wait for the disk before any caller sees a result.
        kit: the kit whose boundary it is, if any.
        saga_id: an id of the user's own; `resume` goes on with the saga that has it.
        resume: go on with the recorded saga of this id, if there is one.
        suspendable: refuse, before its effect, a step that another process could not undo.
        on_crash: "undo", or "hold" to let the program go on with it first.
        resume_grace: for how many seconds recovery holds it then.
        fork_at: go another way after this recorded step; `abandoned` says what becomes of what came
            after it: "undo" or "keep".
    """

    __slots__ = (
        "abandoned",
        "detached",
        "durable",
        "fork_at",
        "hold",
        "kit",
        "labels",
        "name",
        "on_unsettled",
        "reraise",
        "resume",
        "saga_id",
        "suspendable",
        "whole",
    )

    def __init__(
        self,
        *,
        name: str = "",
        labels: Mapping[str, Any] | None = None,
        reraise: bool = False,
        on_unsettled: str = "raise",
        detached: bool = False,
        commit: str = "pipelined",
        kit: object = None,
        saga_id: str | None = None,
        resume: bool = False,
        suspendable: bool = False,
        on_crash: str = "undo",
        resume_grace: float = 900.0,
        fork_at: str | None = None,
        abandoned: str | None = None,
    ) -> None:
        if reraise or detached or resume or suspendable:
            _check_flags(reraise=reraise, detached=detached, resume=resume, suspendable=suspendable)
        _check_about(name, labels)
        _check_named(saga_id, resume=resume)
        _check_fork(fork_at, abandoned, resume=resume)
        self.whole = True
        self.fork_at = fork_at
        self.abandoned = abandoned
        self.name = name or ""
        self.labels = labels
        self.reraise = reraise
        self.on_unsettled = one_of("on_unsettled", on_unsettled, _UNSETTLED)
        self.detached = detached
        self.kit = kit
        self.saga_id = saga_id
        self.resume = resume
        self.suspendable = suspendable
        held = one_of("on_crash", on_crash, _ON_CRASH) == "hold"
        self.hold = checked_grace(resume_grace) if held else None
        self.durable = one_of("commit", commit, COMMITS) == "durable"


def _check_flags(**given: object) -> None:
    for what, value in given.items():
        flag(what, value)


def _check_about(name: object, labels: object) -> None:
    """Refuse at once what would fail when the boundary is entered."""
    if not isinstance(name, str | None):
        raise ConfigurationError(f"The name of a boundary is a text, not {shown(name)}.")
    if labels is not None and not isinstance(labels, Mapping):
        raise ConfigurationError(
            f"labels= of a boundary is a mapping, not {shown(labels)}.",
            fix="Name what is recorded with it: labels={'order': 17}.",
        )


def _check_named(saga_id: object, *, resume: bool) -> None:
    """Refuse to go on with a saga that nobody names: it would begin anew, and do all again."""
    if resume and saga_id is None:
        raise ConfigurationError(
            "resume=True goes on with the saga of a saga_id, and none is given.",
            fix="Give it the id that it was begun with: saga_id='order-17', resume=True.",
        )


def _check_fork(fork_at: object, abandoned: object, *, resume: bool) -> None:
    if fork_at is None and abandoned is None:
        return
    if fork_at is None or not isinstance(fork_at, str) or not fork_at or not resume:
        raise ConfigurationError(
            "Going another way needs resume=True and fork_at= with the step after which it begins.",
            fix=f"fork_at={BEGIN!r} is before the first step; its steps: agent-saga show SAGA",
        )
    if abandoned not in ABANDONED:
        raise ConfigurationError(
            "fork_at= needs abandoned='undo' or abandoned='keep': what becomes of the recorded "
            f"steps after that one, not {abandoned!r}."
        )


def checked_grace(seconds: object) -> float:
    """Return for how long a saga is held.

    Raises:
        ConfigurationError: it is no number of seconds.
    """
    return durations.seconds("resume_grace=", seconds, zero=True)
