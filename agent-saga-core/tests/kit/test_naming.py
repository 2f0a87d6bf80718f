"""Runs of a framework that go on in one saga, and end in any order."""

from __future__ import annotations

from agent_saga.kit.frameworks.boundaries import saga_of
from agent_saga.kit.frameworks.naming import naming


def _name(tool, mac):
    return None


def test_calls_are_named_until_the_last_run_has_ended(kit):
    with kit.transaction() as handle:
        saga = saga_of(handle)
        first, second = naming(saga, _name), naming(saga, _name)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert saga.names is _name
        second.__exit__(None, None, None)
        assert saga.names is None


def test_what_named_them_before_names_them_again(kit):
    def before(tool, mac):
        return "mine"

    with kit.transaction() as handle:
        saga = saga_of(handle)
        saga.names = before
        for _ in range(2):
            with naming(saga, _name):
                assert saga.names is _name
            assert saga.names is before
        saga.names = None
