"""What stands at a tool's `on_invoke_tool`: it names the call, and ends it past error handlers.

Rules of this part:

- It is an object that passes on whatever else the framework asks of the invoker that it stands for.
- What the framework does with a tool's error is the tool's own `failure_error_function`; only what
  is not for it to decide goes past it (see `effects`).
- A synchronous function runs in a thread. When its call is cancelled, the step goes on until the
  thread has ended: then it is known what happened.
- A result that is given again is shown to the model as it was.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from typing import Any

from agent_saga.engine.quitting import ENDS_THE_PROGRAM, LEAVES_A_TOOL, held, kept
from agent_saga.engine.requests import Ending
from agent_saga.errors import ApprovalPending, RefusedError
from agent_saga.kit.frameworks.failures import told
from agent_saga_openai_agents.calls import call_of, calling, running
from agent_saga_openai_agents.effects import Effect, RunLeft
from agent_saga_openai_agents.seams import Implementation


class Invoker:
    """Invokes a tool whose function is a step.

    Args:
        inner: the framework's own invoker, or whatever a tool was given for one.
        name: the tool's.
        effect: the tool's step; None where the tool runs an agent.
        defaults: what the tool's schema says of arguments that are left out.
        policy: the tool's own `needs_approval`.

    Attributes:
        saga_policy: that policy.
    """

    def __init__(
        self,
        inner: Any,
        name: str,
        effect: Effect | None = None,
        defaults: Mapping[str, Any] | None = None,
        policy: Any = False,
    ) -> None:
        self._inner = inner
        self._name = name
        self._effect = effect
        self._defaults = dict(defaults or {})
        self.saga_policy = policy

    async def __call__(self, ctx: Any, input: str) -> Any:  # noqa: A002 - the framework's name
        """Invoke the tool.

        Raises:
            RunLeft: the call ends the run.
        """
        call = call_of(str(ctx.tool_call_id), input, self._defaults)
        approved = getattr(ctx, "is_tool_approved", None)
        call.released = callable(approved) and approved(ctx.tool_name, call.id) is True
        token = calling.set(call)
        try:
            result = await self._inner(ctx, input)
        except asyncio.CancelledError:
            self._note_timeout()
            raise
        except LEAVES_A_TOOL as error:
            if call.left is None and isinstance(error, ENDS_THE_PROGRAM):
                call.left = _quits(error)
            if call.left is None:
                raise
            result = None
        finally:
            calling.reset(token)
        return result if call.left is None else self._ended(call.left)

    def _ended(self, left: Exception) -> str:
        if isinstance(left, ApprovalPending):
            run = running.get()
            if run is not None and run.stop is left:
                raise RunLeft(left)  # a run inside the tool stopped, to be gone on with
            return told(self._name, _unnamed())
        if isinstance(left, RefusedError):
            return told(self._name, left)
        raise left

    def _note_timeout(self) -> None:
        """Stop a run one of whose calls was given up, where a failure is to undo it."""
        run = running.get()
        if run is not None and run.on_tool_failure == "rollback" and run.stop is None:
            run.stop = RunLeft(TimeoutError(f"{self._name} was given up before it had ended."))

    async def needs_approval(self, ctx: Any, arguments: dict[str, Any], id: str) -> bool:  # noqa: A002
        """Say whether a call must wait: for the tool's own policy, or for the gate's question.

        Raises:
            RunLeft: one of them ends the program.
        """
        try:
            if await self._policy_asks(ctx, arguments, id):
                return True
            return self._effect is not None and await self._gate_asks(arguments, id)
        except ENDS_THE_PROGRAM as ending:
            raise _quits(ending) from ending

    async def _gate_asks(self, arguments: dict[str, Any], id: str) -> bool:  # noqa: A002
        assert self._effect is not None  # noqa: S101 - so it was found
        return await self._effect.asks(call_of(id, json.dumps(arguments), self._defaults))

    async def _policy_asks(self, ctx: Any, arguments: dict[str, Any], id: str) -> bool:  # noqa: A002
        if not callable(self.saga_policy):
            return bool(self.saga_policy)
        prepare = getattr(self._inner, "prepare_arguments", None)
        prepared = prepare(json.dumps(arguments), self._name) if callable(prepare) else None
        if prepared is not None and not prepared.unchanged:
            return True  # as the framework decides: the policy would see other values than the tool
        asked = self.saga_policy(ctx, arguments, id)
        return bool(await asked if inspect.isawaitable(asked) else asked)

    def __agents_bind_function_tool__(self, tool: Any) -> Invoker:
        """Return this invoker for a copy of the tool; the framework asks for it."""
        bind = getattr(self._inner, "__agents_bind_function_tool__", None)
        inner = bind(tool) if callable(bind) else self._inner
        return Invoker(inner, self._name, self._effect, self._defaults, self.saga_policy)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and not name.startswith("__agents_"):
            raise AttributeError(name)
        return getattr(self.__dict__["_inner"], name)


def _quits(ending: BaseException) -> RunLeft:
    """Return what leaves the run for what ends the program, and let nothing of it go on."""
    left, run = RunLeft(held(ending)), running.get()
    if run is not None:
        run.stop = left
    return left


def _unnamed() -> RefusedError:
    return RefusedError(
        "The approval does not say who gives it.",
        rule="approval",
        reason="the approval does not say who gives it",
        fix='Use approve(state, by="…").',
    )


async def patiently(implementation: Implementation, ctx: Any, text: str) -> Any:
    """Run what works in a thread to its end, however often it is cancelled meanwhile."""
    task = asyncio.ensure_future(kept(implementation(ctx, text)))
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    result = task.result()
    if isinstance(result, Ending) and result.error is not None:
        raise result.error
    return result
