"""`SagaMiddleware`: steps inside an agent that stays as it is. Needs the extra `langchain`.

Rules of this part:

- List it last, so that it is the innermost: it then records what really ran, after a human has
  edited a call, and each attempt of a retry.
- It makes steps, and no boundary: `saga_run` or `saga_agent` does that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from agent_saga.kit.frameworks import versions
from agent_saga_langgraph.versions import LANGCHAIN, PACKAGE

versions.check(PACKAGE, LANGCHAIN)

from langchain.agents.middleware import AgentMiddleware  # noqa: E402 - after it was found fit

from agent_saga_langgraph.calls import Calls  # noqa: E402

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit
    from agent_saga.kit.frameworks.declarations import Declarations


class SagaMiddleware(AgentMiddleware[Any, Any]):
    """Makes an agent's tool calls steps of the boundary round its run.

    Args:
        kit: the kit that the tools belong to; none when not given.
        tools: a declaration for each tool that is not wrapped already, by name.
    """

    def __init__(self, kit: AgentKit | None = None, *, tools: Declarations | None = None) -> None:
        super().__init__()
        self._calls = Calls(kit, tools or {})

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Execute a tool call as a step.

        Raises:
            UndeclaredTool: nothing says what the tool does to the world.
            NoBoundary: nothing would undo it.
        """
        return self._calls.wrap(request, handler)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Execute a tool call as a step; as `wrap_tool_call`."""
        return await self._calls.awrap(request, handler)

    def tool_node_kwargs(self) -> dict[str, Any]:
        """Return the same as options for a `ToolNode` of one's own."""
        return {"wrap_tool_call": self._calls.wrap, "awrap_tool_call": self._calls.awrap}
