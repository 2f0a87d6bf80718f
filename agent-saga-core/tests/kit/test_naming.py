"""Runs of frameworks that go on in one saga, and end in any order."""

from __future__ import annotations

import pytest

from agent_saga.kit.frameworks.boundaries import saga_of
from agent_saga.kit.frameworks.naming import naming


def _knows(*tools):
    """Return how a package names the calls of tools that its runs make."""
    key = "+".join(tools)
    return lambda tool, mac: key if tool in tools else None


@pytest.fixture
def saga(kit):
    with kit.transaction() as handle:
        yield saga_of(handle)


def test_calls_are_named_until_the_last_run_has_ended(saga):
    first, second = naming(saga, _knows("a")), naming(saga, _knows("a"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert saga.names("a", b"") == "a"
    second.__exit__(None, None, None)
    assert saga.names is None


def test_a_run_inside_one_of_another_package_names_its_own(saga):
    with naming(saga, _knows("a", "b")):
        inner = naming(saga, _knows("b"))
        with inner:
            assert [saga.names(tool, b"") for tool in "abc"] == ["a+b", "b", None]
        assert saga.names("b", b"") == "a+b"


def test_what_named_them_before_names_what_no_run_knows(saga):
    saga.names = before = _knows("a", "b")
    for _ in range(2):
        with naming(saga, _knows("b")):
            assert [saga.names(tool, b"") for tool in "abc"] == ["a+b", "b", None]
        assert saga.names is before
    saga.names = None
