"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

from agent_saga_testing.integration.shape import DecoratorShape, PackageShape


class TestShape(PackageShape):
    package = "agent_saga_autogen"
    loads = ("autogen_core", "autogen_agentchat", "autogen_ext")
    refused = ("0.6.1", "0.8.0")
    names = frozenset(
        {
            *("saga_tool", "SagaStream", "SagaWorkbench", "WorkbenchToolFailed", "bind"),
            *("AutoGenApprovals", "HumanAsked", "Waiting", "approve", "ask_human", "deny"),
        }
    )


class TestDecorator(DecoratorShape):
    package = "agent_saga_autogen"
