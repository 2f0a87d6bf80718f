"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

import quiet  # noqa: F401 - before the framework

from agent_saga_testing.integration.shape import DecoratorShape, PackageShape


class TestShape(PackageShape):
    package = "agent_saga_crewai"
    loads = ("crewai", "pydantic")
    refused = ("1.15.8", "2.0.0")
    names = frozenset(
        {
            *("saga_tool", "ToolReported", "CrewApprovals", "approve", "deny", "ask_human"),
            *("HumanAsked", "Waiting", "SagaAgent", "SagaEventListener", "SagaStepEvent"),
            *("SagaEndedEvent", "SagaPausedEvent"),
        }
    )


class TestDecorator(DecoratorShape):
    package = "agent_saga_crewai"
