"""The extent of one boundary: the root of a saga, or a savepoint in it.

Rules of this part:

- A saga is a tree of scopes. A scope is *open* while a step may start in it, and *fenced* from the
  moment at which it is being undone.
- Closing a scope closes those inside it, outermost first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.domain import identity
from agent_saga.domain.lifecycle import ScopeState, scope_after

if TYPE_CHECKING:
    from contextvars import ContextVar, Token

    from agent_saga.domain.report import RollbackReport
    from agent_saga.engine.saga import Saga


class Scope:
    """The extent of one boundary: the root of a saga, or a savepoint in it.

    Attributes:
        saga, parent, path: where it is; the path of the root is empty.
        open: a new step may start in it.
        fenced: it is being undone.
        is_async: its boundary was entered with `async with`.
        entered_from: the scope that was current when its boundary was entered, or None.
        left: its boundary was left.
        token: gives the context in which it was entered back what was current before.
    """

    __slots__ = (
        "calls",
        "children",
        "entered_from",
        "fenced",
        "is_async",
        "left",
        "name",
        "open",
        "ordinals",
        "parent",
        "path",
        "report",
        "saga",
        "state",
        "token",
        "unawaited",
    )

    def __init__(
        self, saga: Saga, parent: Scope | None, name: str, path: tuple[str, ...], *, is_async: bool
    ) -> None:
        self.saga = saga
        self.parent = parent
        self.name = name
        self.path = path
        self.is_async = is_async
        self.open = True
        self.fenced = False
        self.state = ScopeState.NEW
        self.children: list[Scope] = []
        self.calls: dict[str, identity.Ordinals] = {}
        self.ordinals: dict[str, int] = {}
        self.unawaited: dict[int, Any] = {}
        self.report: RollbackReport | None = None
        self.entered_from: Scope | None = None
        self.left = False
        self.token: Token[Scope | None] | None = None

    def within(self, scope: Scope) -> bool:
        """Say whether this scope is the given one or lies inside it."""
        return self.path[: len(scope.path)] == scope.path

    def subtree(self) -> list[Scope]:
        """Return this scope and every scope inside it."""
        return [self, *[s for child in self.children for s in child.subtree()]]

    def drop_unawaited(self) -> list[str]:
        """Drop the calls in it and inside it that were never awaited; return their names."""
        # As a whole: another thread may make a call meanwhile.
        forgotten = [call for scope in self.subtree() for call in tuple(scope.unawaited.values())]
        for call in forgotten:
            call.close()
        return sorted({call.__qualname__ for call in forgotten})

    def fence(self) -> None:
        """Let no further step of this scope start: it is being undone."""
        with self.saga.lock:
            self._close(fenced=True)

    def shut(self) -> None:
        """Let no further step of this scope start: it ended."""
        with self.saga.lock:
            self._close(fenced=False)

    def _close(self, *, fenced: bool) -> None:
        """Close this scope and those inside it.

        Outermost first: a savepoint that is opened meanwhile looks at its parent after it was
        added. The saga's lock is held, so that no intent is announced behind the end.
        """
        self.fenced = self.fenced or fenced
        self.open = False
        for scope in tuple(self.children):
            scope._close(fenced=fenced)  # noqa: SLF001 - its own class

    def move(self, event: str) -> None:
        """Change the state as the lifecycle table says."""
        self.state = scope_after(self.state, event)


def left_behind(current: ContextVar[Scope | None]) -> Scope | None:
    """Return what is current here, where a boundary was entered here and left in another context.

    A task or a thread that the boundary began has a context of its own: there it stays current.

    Args:
        current: the variable that holds the current scope.
    """
    scope = current.get()
    while scope is not None and scope.left and scope.token is not None:
        try:
            current.reset(scope.token)
        except (ValueError, RuntimeError):
            return scope
        scope.token = None
        scope = current.get()
    return scope
