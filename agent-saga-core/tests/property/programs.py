"""What a random saga consists of: tools, how their calls go, and what the program does."""

from __future__ import annotations

from dataclasses import dataclass, field

NOW, NEVER, LATE = "now", "never", "late"
SETTLE_AFTER = 2.0
"""Seconds of virtual time after which nothing of an unanswered call arrives any more."""


class FailedBefore(Exception):
    """A tool failed before it had any effect, and its author says so."""


class BodyError(Exception):
    """The program itself fails."""


@dataclass(frozen=True)
class Mode:
    """How one call of the world goes.

    `before` and `after` are pauses round the effect: "" none, "turn" a moment, "long" longer than
    any timeout. `error` is raised in the end.
    """

    effect: str = NOW
    error: type[BaseException] | None = None
    before: str = ""
    after: str = ""
    delay: float = 0.0
    stubborn: bool = False


@dataclass(frozen=True)
class Spec:
    """One tool as it is declared."""

    semantics: str = "COMPENSABLE"
    is_async: bool = True
    inverse: str = "undo"
    undo_async: bool = False
    undo_idempotent: bool = False
    undo_timeout: float | None = None
    prober: str = ""
    reconciler: str = ""
    idempotent: bool = False
    repeatable: bool = False
    timeout: float | None = None
    retry: bool = False
    fallback: bool = False
    durable: bool = False
    prepare: bool = False

    @property
    def null_safe(self) -> bool:
        """Whether its inverse is declared harmless when nothing happened."""
        return self.inverse in ("null-safe", "provisional")

    @property
    def declared_to_stand(self) -> bool:
        """Whether its effect may stand after everything was undone."""
        return self.semantics == "REVERSIBLE" or self.inverse == "nothing"


@dataclass
class Plan:
    """How the calls with one label go, one mode for each call; later ones go well."""

    spec: Spec
    forward: list[Mode] = field(default_factory=list)
    fallback: list[Mode] = field(default_factory=list)
    undo: list[Mode] = field(default_factory=list)
    approval: str = "yes"


@dataclass(frozen=True)
class CallOp:
    """Call the tool of a label; an equal call is one with the same label."""

    label: int
    key: str = ""
    caught: bool = False
    bad_arguments: bool = False


@dataclass(frozen=True)
class Fail:
    """The program raises."""

    error: type[BaseException] = BodyError


@dataclass(frozen=True)
class Abort:
    """The program aborts the saga, and perhaps swallows what that raises."""

    caught: bool = False


@dataclass(frozen=True)
class Pause:
    """The program waits."""

    long: bool = False


@dataclass(frozen=True)
class Parallel:
    """Branches at the same time: by "gather", "all" (return_exceptions), "group" or "threads"."""

    how: str
    branches: tuple[tuple[object, ...], ...]
    caught: bool = False


@dataclass(frozen=True)
class Savepoint:
    """A boundary inside the boundary."""

    ops: tuple[object, ...]
    caught: bool = False


@dataclass(frozen=True)
class Within:
    """The operations under `asyncio.timeout`, which may end them."""

    ops: tuple[object, ...]
    seconds: float
    caught: bool = False


@dataclass(frozen=True)
class Background:
    """A call that is started and not waited for."""

    call: CallOp


@dataclass
class Program:
    """A whole random saga and what happens to it from outside.

    `cuts` cancel (or interrupt) the run at the n-th event of the world, `turns` at the n-th turn of
    the event loop; `fence` lets another process take the saga over at the n-th event.
    """

    plans: dict[int, Plan]
    ops: tuple[object, ...]
    cuts: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()
    fence: int = 0
    wal: str = "memory"
    settle: float = 0.0
    after_stuck: str = "halt"
    settle_unknown: str = "wait"
