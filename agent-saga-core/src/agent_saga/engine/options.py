"""How a boundary behaves, as it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_saga.engine.tool import COMMITS, one_of

_UNSETTLED = ("raise", "warn")


class BoundaryOptions:
    """How a boundary behaves.

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
    """

    __slots__ = (
        "detached",
        "durable",
        "kit",
        "labels",
        "name",
        "on_unsettled",
        "reraise",
        "resume",
        "saga_id",
        "suspendable",
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
    ) -> None:
        self.name = name
        self.labels = labels
        self.reraise = reraise
        self.on_unsettled = one_of("on_unsettled", on_unsettled, _UNSETTLED)
        self.detached = detached
        self.kit = kit
        self.saga_id = saga_id
        self.resume = resume
        self.suspendable = suspendable
        self.durable = one_of("commit", commit, COMMITS) == "durable"
