"""NAME-1: which of two inverses would run never depends on the order of imports."""

from __future__ import annotations

import pytest

from agent_saga.errors import DuplicateName
from agent_saga.plugins.named import NamedRegistry
from agent_saga.plugins.ownership import owner_of


def first():
    """One inverse."""


def second():
    """Another inverse."""


@pytest.mark.guarantee("NAME-1")
def test_a_second_function_under_a_taken_name_is_refused():
    registry = NamedRegistry("compensator")
    registry.put("refund", first, owner_of(first))
    with pytest.raises(DuplicateName):
        registry.put("refund", second, owner_of(second))
    assert registry.find("refund") is first


def test_the_same_function_may_be_registered_again():
    registry = NamedRegistry("compensator")
    registry.put("refund", first, owner_of(first))
    registry.put("refund", first, owner_of(first))
    assert list(registry) == ["refund"]
