"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

from agent_saga_testing.integration.shape import DecoratorShape, PackageShape


class TestShape(PackageShape):
    package = "agent_saga_llamaindex"
    loads = ("llama_index", "workflows", "llama_index_instrumentation")
    refused = ("0.14.21", "0.15.0")
    names = frozenset(
        {
            *("saga_tool", "SagaStream", "EventApprovals", "ApprovalRequired", "ApprovalGiven"),
            *("Waiting", "approve", "deny"),
        }
    )


class TestDecorator(DecoratorShape):
    package = "agent_saga_llamaindex"
