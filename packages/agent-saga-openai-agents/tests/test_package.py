"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

from agent_saga_testing.integration.shape import DecoratorShape, PackageShape


class TestShape(PackageShape):
    package = "agent_saga_openai_agents"
    loads = ("agents", "openai", "mcp")
    refused = ("0.18.2", "1.0.0")
    names = frozenset(
        {"saga_tool", "SagaStream", "RunStateApprovals", "approve", "deny", "ServerToolFailed"}
    )


class TestDecorator(DecoratorShape):
    package = "agent_saga_openai_agents"
