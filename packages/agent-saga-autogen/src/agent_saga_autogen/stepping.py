"""The tools whose calls are steps, as AutoGen sees them: what stands at `run_json`.

Rules of this part:

- A call that is cancelled through its token ends with an error that the model is shown: AutoGen
  would wait for ever for one that ends with a cancellation.
- A tool like these cannot be dumped as a component: loaded again, its calls would be no steps.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import BaseTool, FunctionTool
from pydantic import BaseModel

from agent_saga.errors import ConfigurationError
from agent_saga.kit.frameworks.failures import is_cancelled
from agent_saga_autogen import seams
from agent_saga_autogen.binding import Binding
from agent_saga_autogen.calls import called, inside
from agent_saga_autogen.effects import Effect
from agent_saga_autogen.leaving import CallCancelled


class StepTool(BaseTool[Any, Any]):
    """What the tools have in common.

    Attributes:
        saga_effect: the step.
        saga_binding: where it is called, if not in the boundary of its caller.
    """

    saga_effect: Effect
    saga_binding: Binding

    @property
    def saga_behind(self) -> object:
        """What tells the tool from others of its name: what it calls."""
        return self.saga_effect.tool.tool.fn

    async def run_json(
        self,
        args: Mapping[str, Any],
        cancellation_token: CancellationToken,
        call_id: str | None = None,
    ) -> Any:
        """Make a call as a step.

        Raises:
            CallCancelled: it was cancelled; the outcome is not known.
            Exception: it failed, or did not run.
        """
        step = functools.partial(self._step, args, cancellation_token, call_id)
        try:
            return await self.saga_binding.call(step)
        except asyncio.CancelledError as cut:
            if cancellation_token.is_cancelled():
                raise CallCancelled(f"{self.name} was cancelled before it had ended.") from cut
            raise

    async def _step(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None
    ) -> Any:
        chosen = self.args_type().model_validate(args)
        with called(inside(call_id or "", _plain(chosen, args))):
            return await super().run_json(args, cancellation_token, call_id=call_id)

    def _to_config(self) -> Any:
        raise _cannot_be_dumped(self.name)


class FunctionStep(StepTool, FunctionTool):
    """A `FunctionTool` whose function is a step.

    Args:
        effect: the step.
        shown: the function as the model is shown it.
        options: as `FunctionTool` takes them.
    """

    def __init__(self, effect: Effect, shown: Callable[..., Any], **options: Any) -> None:
        super().__init__(effect.function(shown), **options)
        self.saga_effect = effect
        self.saga_binding = Binding()


class JsonStep(StepTool):
    """A tool of any class, whose `run_json` is a step.

    Args:
        effect: the step, of `forward`.
        inner: the tool.
    """

    def __init__(self, effect: Effect, inner: BaseTool[Any, Any]) -> None:
        strict = bool(getattr(inner, "_strict", False))
        super().__init__(
            inner.args_type(), inner.return_type(), inner.name, inner.description, strict
        )
        self._inner = inner
        self.saga_effect = effect
        self.saga_binding = Binding()

    @property
    def saga_behind(self) -> object:
        """What tells the tool from others of its name: what it calls."""
        return seams.behind(self._inner)

    @property
    def schema(self) -> Any:
        """The tool's own schema."""
        return self._inner.schema

    def return_value_as_string(self, value: Any) -> str:
        """Return a result as the tool shows it."""
        return self._inner.return_value_as_string(value)

    def state_type(self) -> type[BaseModel] | None:
        """Return the type of the tool's own state."""
        return self._inner.state_type()

    async def save_state_json(self) -> Mapping[str, Any]:
        """Return the tool's own state."""
        return await self._inner.save_state_json()

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        """Give the tool its own state."""
        await self._inner.load_state_json(state)

    async def run(self, args: Any, cancellation_token: CancellationToken) -> Any:
        """Make a call as a step, without the model's id of it."""
        return await self.run_json(args.model_dump(), cancellation_token)

    async def _step(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None
    ) -> Any:
        chosen = self.args_type().model_validate(args)
        run = functools.partial(self._inner.run_json, args, cancellation_token, call_id=call_id)
        with called(inside(call_id or "", _plain(chosen, args))):
            return await self.saga_effect.call((run,), {})


class HandoffTool(BaseTool[Any, Any]):
    """A tool by which an agent hands over to another one; it is no step, and never raises.

    Args:
        inner: the framework's.
    """

    def __init__(self, inner: BaseTool[Any, Any]) -> None:
        strict = bool(getattr(inner, "_strict", False))
        super().__init__(
            inner.args_type(), inner.return_type(), inner.name, inner.description, strict
        )
        self._inner = inner

    @property
    def schema(self) -> Any:
        """The tool's own schema."""
        return self._inner.schema

    async def run_json(
        self,
        args: Mapping[str, Any],
        cancellation_token: CancellationToken,
        call_id: str | None = None,
    ) -> Any:
        """Hand over; what a model wrote for arguments does not matter if it is no object."""
        given = args if isinstance(args, Mapping) else {}
        try:
            return await self._inner.run_json(given, cancellation_token, call_id=call_id)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return f"{self.name} was cancelled."
        except Exception as error:
            return str(error)

    async def run(self, args: Any, cancellation_token: CancellationToken) -> Any:
        """Hand over."""
        return await self.run_json(args.model_dump(), cancellation_token)


async def forward(run: Callable[[], Awaitable[Any]]) -> Any:
    """Do what a tool does; the function of a step whose tool is not seen into."""
    return await run()


def _cannot_be_dumped(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} is a step, and cannot be dumped: loaded again, it would be none.",
        fix="Dump what it was made from, and wrap that again when it is loaded.",
    )


def _plain(chosen: BaseModel, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model chose, with the tool's defaults, as plain data."""
    try:
        return chosen.model_dump(mode="json")
    except Exception:
        return dict(args)  # a type without a form in JSON; what the model wrote has one
