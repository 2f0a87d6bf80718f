"""Tool nodes of graphs that are made by hand: `SagaToolNode`, and options for one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool
from langchain_core.tools import tool as made_tool
from langgraph.prebuilt import ToolNode

from agent_saga_langgraph.calls import Calls
from agent_saga_langgraph.tools import wrap_tools

if TYPE_CHECKING:
    from agent_saga.kit.agent_kit import AgentKit
    from agent_saga.kit.frameworks.declarations import Declarations


class SagaToolNode(ToolNode):
    """A `ToolNode` whose tools' calls are steps.

    Args:
        tools: tools or functions, as for `ToolNode`.
        kit: the kit that they belong to; none when not given.
        declared: a declaration for each tool that is not wrapped already, by name.
        options: further options of `ToolNode`.

    Raises:
        UndeclaredTool: some tools have no declaration; the error names all of them.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        *,
        kit: AgentKit | None = None,
        declared: Declarations | None = None,
        **options: Any,
    ) -> None:
        given = [tool if isinstance(tool, BaseTool) else made_tool(tool) for tool in tools]
        super().__init__(wrap_tools(given, declared or {}, kit=kit), **options)


def tool_node_kwargs(
    kit: AgentKit | None = None, *, tools: Declarations | None = None
) -> dict[str, Any]:
    """Return the options that make a tool node's calls steps: `ToolNode(tools, **options)`.

    Args:
        kit: the kit that the tools belong to; none when not given.
        tools: a declaration for each tool that is not wrapped already, by name.

    A call outside any boundary is refused, unless the tool is a read.
    """
    calls = Calls(kit, tools or {})
    return {"wrap_tool_call": calls.wrap, "awrap_tool_call": calls.awrap}
