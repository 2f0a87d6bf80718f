"""`saga_agent`: the same agent, each run a boundary.

Rules of this part:

- The tools in the graph's tool nodes are replaced by wrapped ones, wherever the nodes are found
  (see `discovery`): the graph that was given has them too. A tool that is not found does not run
  (see `unseen`).
- Every tool must be declared; one error names all that are not.
- The agent that comes back is of a subclass of the agent's own class: whatever else it can do
  (`get_state`, `get_graph`, `stream_events`, …) it still does, and what serves compiled graphs, a
  LangGraph server among them, serves it, copies included.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel

from agent_saga.errors import ConfigurationError
from agent_saga.kit.agent_kit import AgentKit
from agent_saga.kit.frameworks.declarations import Declarations
from agent_saga_langgraph.discovery import tool_nodes
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
) -> Any:
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
        ConfigurationError: it is no compiled graph, a declaration names no tool of it, or there is
            nobody to ask.

    The tools are replaced in the agent that is given: without a boundary it warns once for each
    of them, and refuses those that are IRREVERSIBLE.
    """
    Asked(kit, on_tool_failure=on_tool_failure).check()
    if not isinstance(agent, Pregel):
        raise ConfigurationError(
            f"saga_agent takes a compiled graph, not {type(agent).__name__}.",
            fix="Give it what create_agent(…) or builder.compile() returned; run anything else "
            "with saga_run.",
        )
    if isinstance(agent, SagaAgent):
        raise ConfigurationError("The agent's runs are boundaries already.")
    nodes = tool_nodes(agent)
    found = {id(tool): tool for node in nodes for tool in node.tools_by_name.values()}
    wrapped = dict(zip(found, wrap_tools(found.values(), tools or {}, kit=kit), strict=True))
    for node in nodes:
        own = {name: wrapped[id(tool)] for name, tool in node.tools_by_name.items()}
        node.tools_by_name.update(own)
    return _bounded(agent, {"kit": kit, "on_tool_failure": on_tool_failure})


class SagaAgent:
    """An agent whose runs are boundaries; made by `saga_agent`, together with the agent's class."""

    _saga_options: dict[str, Any]

    @property
    def graph(self) -> Any:
        """The agent as it was given, whose runs are no boundaries."""
        base = _base_of(type(self))
        plain = object.__new__(base)
        plain.__dict__.update({k: v for k, v in self.__dict__.items() if k != _OPTIONS})
        return plain

    @property
    def saga_kit(self) -> AgentKit | None:
        """The kit whose boundaries its runs are."""
        return self._saga_options["kit"]  # type: ignore[no-any-return]

    def copy(self, update: dict[str, Any] | None = None) -> Any:
        """Return a copy of the agent with other settings, whose runs are boundaries, too."""
        return _bounded(self.graph.copy(update), self._saga_options)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Run the agent as `saga_run_sync` does; further arguments are the framework's."""
        return saga_run_sync(self.graph, input, config, **{**self._saga_options, **kwargs})

    async def ainvoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the agent as `saga_run` does; further arguments are the framework's."""
        return await saga_run(self.graph, input, config, **{**self._saga_options, **kwargs})

    def stream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Stream a run as `saga_stream_sync` does; further arguments are the framework's."""
        return saga_stream_sync(self.graph, input, config, **{**self._saga_options, **kwargs})

    def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Stream a run as `saga_stream` does; further arguments are the framework's."""
        return saga_stream(self.graph, input, config, **{**self._saga_options, **kwargs})


_OPTIONS: Final = "_saga_options"


_classes: dict[type[Any], type[Any]] = {}


def _class_of(base: type[Any]) -> type[Any]:
    found = _classes.get(base)
    if found is None:
        body = {"__doc__": base.__doc__, "__module__": base.__module__}
        found = _classes.setdefault(base, type(base.__name__, (SagaAgent, base), body))
    return found


def _base_of(cls: type[Any]) -> type[Any]:
    return next(base for base in cls.__mro__ if not issubclass(base, SagaAgent))


def _bounded(agent: Any, options: dict[str, Any]) -> Any:
    bounded = object.__new__(_class_of(type(agent)))
    bounded.__dict__.update(agent.__dict__, **{_OPTIONS: options})
    return bounded
