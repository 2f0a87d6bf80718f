"""Asking a policy engine of your own: the adapter for OPA, Cedar and their like.

Rules of this part:

- A `DecisionRule` hands a plain document about the call to a function, which asks the engine in
  whatever way it is asked, and reads the engine's answer: yes, no, or ask a human.
- Whatever is no clear answer refuses: unreachable, raising, too late, None, an empty result, a yes
  beside a `deny` that is not empty. An engine that has no rule for a call says so with an empty
  result, and that is no yes.
- Secrets in arguments are masked before the document leaves the process.
- A plugin returns such rules from `saga_gate_rules`, and they hold for every gate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from agent_saga.controls.control import CallView
from agent_saga.controls.rules import RULES, Rule
from agent_saga.errors import RefusedError
from agent_saga.plugins.callables import is_async_callable
from agent_saga.wal.encoding import decode, masked

__all__ = ["DecisionRule", "call_document"]

Decide = Callable[[dict[str, Any]], Any]
_WORDS: Final = {"allow": "allow", "permit": "allow", "deny": "refuse", "forbid": "refuse"}
_VERDICTS: Final = {**_WORDS, "refuse": "refuse", "ask": "ask"}


def call_document(call: CallView) -> dict[str, Any]:
    """Return what a policy engine is told of a call, as plain JSON data without secrets."""
    return {
        "tool": call.tool,
        "semantics": call.semantics.value,
        "arguments": decode(masked(dict(call.arguments))[0]),
        "tags": sorted(call.tags),
        "saga": call.saga,
        "step": call.step,
    }


class DecisionRule(Rule):
    """A rule whose verdict a policy engine gives.

    Args:
        name: how verdicts name it.
        decide: a function or coroutine function; gets the document of `call_document` and returns
            the engine's answer: True or False; "allow", "permit", "deny", "forbid", "refuse" or
            "ask" in any case; or a mapping that holds such an answer as `result`, `decision` or
            `allow`, and may hold a `reason`.
        timeout: seconds that it has; a function then runs on a thread of the pool.

    Raises:
        ConfigurationError: as for `Rule`.

    Fails closed: no answer in time, an error, or anything else refuses the call.
    """

    __slots__ = ()

    def __init__(self, name: str, decide: Decide, *, timeout: float = 5.0) -> None:
        when = _asynchronous(decide) if is_async_callable(decide) else _plain(decide)
        super().__init__(name, when, "refuse", timeout=timeout)

    def follow(self, call: CallView, answer: object) -> None:
        """Do what the engine's answer says.

        Raises:
            RefusedError: it says no, or nothing.
        """
        verdict, reason = _read(answer)
        if verdict == "allow":
            return
        if verdict == "ask":
            call.ask(self.name, reason or f"the policy engine {self.name!r} asks for it")
            return
        if verdict != "refuse":
            raise self.broken("the policy engine gave no decision")
        reason = reason or "the policy engine says no"
        raise RefusedError(
            f"{call.tool} was refused by {self.name!r}: {reason}.",
            rule=self.name,
            reason=reason,
            control=RULES,
        )


def _plain(decide: Decide) -> Callable[[CallView], Any]:
    return lambda call: decide(call_document(call))


def _asynchronous(decide: Callable[[dict[str, Any]], Awaitable[Any]]) -> Callable[[CallView], Any]:
    async def when(call: CallView) -> Any:
        return await decide(call_document(call))

    return when


def _read(answer: object) -> tuple[str, str]:
    """Return the verdict and the reason that an answer holds; an empty verdict is none."""
    reason = ""
    for _ in range(4):  # {"result": {"decision": {"allow": true}}} is as deep as anybody nests
        if not isinstance(answer, Mapping):
            break
        told = answer.get("reason")
        reason = told if isinstance(told, str) else reason
        if any(answer.get(key) for key in ("deny", "forbid")):
            return "", reason
        found = [key for key in ("result", "decision", "allow") if key in answer]
        answer = answer[found[0]] if len(found) == 1 else None
    if answer is True or answer is False:
        return ("allow" if answer else "refuse"), reason
    word = answer.lower() if isinstance(answer, str) else ""
    return _VERDICTS.get(word, ""), reason
