"""The root of every error, and how one is told on one line.

Errors reach other processes whole: a pool of workers pickles them, a framework copies them. An
exception that one of them names and that cannot be read again over there goes as its text: what
cannot be read leaves whoever waits for the worker waiting.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AgentSagaError",
    "AgentSagaWarning",
    "IllegalTransition",
    "one_line",
    "text_of",
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
    message = fix = ""  # of a class of the user's that does not call this one's __init__

    def __init__(self, message: str = "", *, fix: str = "") -> None:
        self.message = text_of(message) or _said_of(type(self))
        self.fix = fix
        super().__init__(self.message)

    def __str__(self) -> str:
        message = text_of(self.message) or _said_of(type(self))
        head, newline, rest = message.partition("\n")
        text = f"{head} [{type(self).code}]{newline}{rest}"
        told = not self.fix or self.fix in message
        return text if told else f"{text}\n  To do: {self.fix}"

    def __reduce__(self) -> tuple[Any, ...]:
        told = {name: _portable(value) for name, value in vars(self).items()}
        return _read_back, (type(self), self.args), told


def _said_of(kind: type[AgentSagaError]) -> str:
    """Return what a class says of itself, where its error says nothing."""
    return (kind.__doc__ or "").strip().partition("\n")[0]


def _read_back(kind: type[AgentSagaError], args: tuple[object, ...]) -> AgentSagaError:
    """Return an error as it was pickled, whatever its class asks for; its attributes follow."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def _portable(value: object) -> object:
    """Return what another process can read: an exception that it could not goes as its text."""
    if not isinstance(value, BaseException):
        return value
    import pickle  # noqa: PLC0415 - only where an error is pickled

    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301 - made on the same line
    except Exception:
        return AgentSagaError(one_line(value))
    return value


def text_of(value: object) -> str:
    """Return what a program gave for a text, as text: a number, an answer, an error."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    try:
        return str(value)
    except Exception:
        return "(it cannot be shown)"


def one_line(error: BaseException) -> str:
    """Return an error's class and what it says, on one line, without code and fix."""
    try:
        text = str(error.message if isinstance(error, AgentSagaError) else error)
    except Exception:
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {' '.join(text.split())}".removesuffix(": ")


def said_by(error: BaseException) -> str:
    """Return what an error says, or its class where it says nothing, as an interrupt does."""
    return text_of(error) or type(error).__name__


class IllegalTransition(AgentSagaError):
    """A record would move a step or a saga in a way that its lifecycle forbids (a bug of ours)."""

    code = "SAGA-190"
