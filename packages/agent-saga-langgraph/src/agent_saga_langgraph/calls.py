"""Tool calls of a graph that is left as it is: the tool of each call is replaced by a wrapped copy.

Rules of this part:

- A tool that nobody declared is refused before it runs, and so is one without a boundary round it,
  unless it is a read.
- The copy is made once for each tool; a tool that is wrapped already is used as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.engine.boundary import current_scope
from agent_saga.errors import NoBoundary
from agent_saga.kit.frameworks.declarations import Declarations, checked, from_policy, undeclared
from agent_saga_langgraph.tools import behind, is_read, is_wrapped, wrap_as

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from agent_saga.kit.agent_kit import AgentKit


class Calls:
    """Replaces the tools of tool calls.

    Args:
        kit: the kit that the tools belong to, or None.
        declared: a declaration for each tool, by name.
    """

    def __init__(self, kit: AgentKit | None, declared: Declarations) -> None:
        self._kit = kit
        self._declared = checked(declared)
        self._copies: dict[int, tuple[BaseTool, BaseTool]] = {}

    def replaced(self, request: ToolCallRequest) -> ToolCallRequest:
        """Return a request whose tool is a step; one for an unknown tool stays as it is.

        Raises:
            UndeclaredTool: nothing says what the tool does to the world.
            NoBoundary: nothing would undo it.
        """
        if request.tool is None:
            return request
        tool = self._wrapped(request.tool)
        if current_scope.get() is None and not is_read(tool):
            raise NoBoundary(
                f"{tool.name} was called outside any boundary; it did not run.",
                rule="outside",
                reason="nothing would undo it if the run fails",
                fix="Run the agent with saga_run(agent, …), or make it a saga_agent(agent, kit).",
            )
        return request.override(tool=tool)

    def _wrapped(self, tool: BaseTool) -> BaseTool:
        if is_wrapped(tool):
            return tool
        kept = self._copies.get(id(tool))
        if kept is None:
            declaration = self._declared.get(tool.name) or from_policy(self._kit, tool.name)
            if declaration is None:
                raise undeclared([tool.name])
            self._declared.check_meant(tool.name, tool, behind=behind)
            kept = self._copies[id(tool)] = (tool, wrap_as(tool, declaration, self._kit))
        return kept[1]

    def wrap(self, request: Any, execute: Any) -> Any:
        """Execute a tool call as a step; for `ToolNode(wrap_tool_call=…)`."""
        return execute(self.replaced(request))

    async def awrap(self, request: Any, execute: Any) -> Any:
        """Execute a tool call as a step; for `ToolNode(awrap_tool_call=…)`."""
        return await execute(self.replaced(request))
