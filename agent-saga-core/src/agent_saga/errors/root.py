"""The root of every error, and how one is told on one line."""

from __future__ import annotations

__all__ = [
    "AgentSagaError",
    "AgentSagaWarning",
    "IllegalTransition",
    "one_line",
]


class AgentSagaWarning(UserWarning):
    """Something that agent-saga can live with and a person should know."""


class AgentSagaError(Exception):
    """The root of every error of agent-saga.

    Args:
        message: what happened and what stands, as sentences.
        fix: the next thing to do: a sentence, a setting or a command.
    """

    code = "SAGA-000"

    def __init__(self, message: str = "", *, fix: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip().partition("\n")[0]
        self.fix = fix
        super().__init__(self.message)

    def __str__(self) -> str:
        head, newline, rest = self.message.partition("\n")
        text = f"{head} [{self.code}]{newline}{rest}"
        told = not self.fix or self.fix in self.message
        return text if told else f"{text}\n  To do: {self.fix}"


def one_line(error: BaseException) -> str:
    """Return an error's class and what it says, on one line, without code and fix."""
    try:
        text = error.message if isinstance(error, AgentSagaError) else str(error)
    except Exception:
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {' '.join(text.split())}".removesuffix(": ")


class IllegalTransition(AgentSagaError):
    """A record would move a step or a saga in a way that its lifecycle forbids (a bug of ours)."""

    code = "SAGA-190"
