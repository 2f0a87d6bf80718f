"""`saga_agent`: the same agent, each run a boundary.

Rules of this part:

- The tools in the graph's tool nodes, those of its subgraphs included, are replaced by wrapped
  ones: the graph that was given has them too.
- Every tool must be declared; one error names all that are not.
- Whatever else the agent can do (`get_state`, `get_graph`, …) it still does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.prebuilt import ToolNode

from agent_saga.kit.agent_kit import AgentKit
from agent_saga_langgraph.declarations import Declarations
from agent_saga_langgraph.plans import Asked
from agent_saga_langgraph.running import saga_run, saga_run_sync
from agent_saga_langgraph.streams import saga_stream, saga_stream_sync
from agent_saga_langgraph.tools import wrap_tools


def saga_agent(
    agent: Any,
    kit: AgentKit | None = None,
    *,
    tools: Declarations | None = None,
    on_tool_failure: str = "continue",
) -> SagaAgent:
    """Return the same agent, each of whose runs is a boundary.

    Args:
        agent: a compiled graph: what `create_agent(…)` or `builder.compile()` returned.
        kit: whose boundaries they are; the process's defaults when not given.
        tools: a declaration for every tool in its tool nodes, by name; tools that are wrapped
            already need none.
        on_tool_failure: "continue" (a tool error is not a run failure), "rollback", or "ask" a
            human through the gate.

    Raises:
        UndeclaredTool: some tools have no declaration; the error names all of them.
        ConfigurationError: a declaration names no tool of the agent, or there is nobody to ask.

    The tools are replaced in the agent that is given: without a boundary it warns once for each
    of them, and refuses those that are IRREVERSIBLE.
    """
    Asked(kit, on_tool_failure=on_tool_failure).check()
    nodes = _tool_nodes(agent)
    found = {name: tool for node in nodes for name, tool in node.tools_by_name.items()}
    wrapped = dict(zip(found, wrap_tools(found.values(), tools or {}, kit=kit), strict=True))
    for node in nodes:
        node.tools_by_name.update({name: wrapped[name] for name in node.tools_by_name})
    return SagaAgent(agent, kit, on_tool_failure)


def _tool_nodes(agent: Any) -> list[ToolNode]:
    graphs = [agent, *[graph for _, graph in agent.get_subgraphs(recurse=True)]]
    bound = [node.bound for graph in graphs for node in graph.nodes.values()]
    return [node for node in bound if isinstance(node, ToolNode)]


class SagaAgent(Runnable[Any, Any]):
    """An agent whose runs are boundaries; made by `saga_agent`.

    Args:
        graph: the compiled graph.
        kit: whose boundaries they are, or None.
        on_tool_failure: "continue", "rollback" or "ask".
    """

    def __init__(self, graph: Any, kit: AgentKit | None, on_tool_failure: str) -> None:
        self.graph = graph
        self._options: dict[str, Any] = {"kit": kit, "on_tool_failure": on_tool_failure}

    @property
    def saga_kit(self) -> AgentKit | None:
        """The kit whose boundaries its runs are."""
        return self._options["kit"]  # type: ignore[no-any-return]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Run the agent as `saga_run_sync` does; further arguments are the framework's."""
        return saga_run_sync(self.graph, input, config, **{**self._options, **kwargs})

    async def ainvoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the agent as `saga_run` does; further arguments are the framework's."""
        return await saga_run(self.graph, input, config, **{**self._options, **kwargs})

    def stream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Stream a run as `saga_stream_sync` does; further arguments are the framework's."""
        return saga_stream_sync(self.graph, input, config, **{**self._options, **kwargs})

    def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Stream a run as `saga_stream` does; further arguments are the framework's."""
        return saga_stream(self.graph, input, config, **{**self._options, **kwargs})

    def with_config(self, config: RunnableConfig | None = None, **kwargs: Any) -> SagaAgent:
        """Return the agent with a configuration of its own."""
        changed = SagaAgent(self.graph.with_config(config, **kwargs), None, "continue")
        changed._options = self._options
        return changed

    def get_graph(self, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return a drawing of the agent's graph."""
        return self.graph.get_graph(config, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "graph":
            raise AttributeError(name)
        return getattr(self.graph, name)
