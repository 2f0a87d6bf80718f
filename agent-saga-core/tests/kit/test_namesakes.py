"""Two tools of one name: a declaration by name is for one of them."""

from __future__ import annotations

import functools

import pytest

from agent_saga import ConfigurationError
from agent_saga.kit.frameworks.declarations import checked, compensable, read_only
from agent_saga.kit.frameworks.declared import each_declared
from agent_saga.kit.frameworks.namesakes import same


class Tool:
    def __init__(self, name, fn=None, wrapped=False):
        self.name, self.fn, self.wrapped = name, fn, wrapped


class Odd:
    def __eq__(self, other):
        raise ValueError("neither")

    __hash__ = None


def made_for(client, times=1):
    def charge():
        return client, times

    return charge


def declare(*tools, declared=None, behind=lambda tool: tool):
    return each_declared(
        tools,
        checked(declared or {"charge": read_only()}),
        None,
        name=lambda tool: tool.name,
        wrapped=lambda tool: tool.wrapped,
        behind=behind,
    )


def test_one_tool_may_stand_in_several_places():
    charge = Tool("charge")
    assert len(declare(charge, charge)) == 2


@pytest.mark.guarantee("NAME-2")
def test_a_second_tool_of_the_name_is_refused():
    said = "Two different tools are named charge"
    with pytest.raises(ConfigurationError, match=said) as refused:
        declare(Tool("charge"), Tool("charge"))
    assert "wrap_tool(tool, name='my charge'" in refused.value.fix


def test_one_that_is_wrapped_by_itself_may_have_the_name():
    found = declare(Tool("charge", wrapped=True), Tool("charge"))
    assert [one is None for _, one in found] == [True, False]


def test_two_that_call_the_same_function_are_one_tool():
    fn = made_for("a")
    assert declare(Tool("charge", fn), Tool("charge", fn), behind=lambda tool: tool.fn)


@pytest.mark.guarantee("NAME-2")
def test_what_shows_later_is_held_against_what_was_met_before():
    declared = checked({"charge": compensable({"handler": "refund", "kwargs": {}})})
    declare(Tool("charge"), declared=declared)
    with pytest.raises(ConfigurationError, match="Two different tools"):
        declare(Tool("charge"), declared=declared)


def test_what_a_run_brings_is_forgotten_with_it():
    declared = checked({"charge": read_only()})
    declared.for_a_run().check_meant("charge", Tool("charge"))
    declared.for_a_run().check_meant("charge", Tool("charge"))
    declared.check_meant("charge", Tool("charge"))
    with pytest.raises(ConfigurationError, match="Two different tools"):
        declared.for_a_run().check_meant("charge", Tool("charge"))


def test_a_function_that_is_made_anew_is_the_same_where_it_holds_the_same():
    client = object()
    assert same(made_for(client), made_for(client))
    assert not same(made_for(client), made_for(object()))
    assert not same(made_for(client), made_for(client, 2))
    assert not same(made_for(client), lambda: client)


def test_partial_functions_are_compared_by_what_they_call():
    client = object()
    assert same(functools.partial(print, client, end=""), functools.partial(print, client, end=""))
    assert not same(functools.partial(print, client), functools.partial(print, object()))
    assert not same(functools.partial(print, end="a"), functools.partial(print, end="b"))


def test_what_cannot_be_compared_is_another_tool():
    assert not same(Odd(), Odd())


def test_functions_that_hold_nothing_yet_are_compared_too():
    """A name outside may get its value later: till then nobody knows that it is the same."""

    def made():
        def look():
            return later

        shown = look
        if shown is None:
            later = 1
        return shown

    one = made()
    assert same(one, one)
    assert not same(one, made())
