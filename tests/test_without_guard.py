"""Taking a guard out: what stands in has its kind, and every holder of the guard gets it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from types import ModuleType

import pytest

from tools import guarantees, guards, without_guard


class Door:
    def shut(self, key):
        return key

    @staticmethod
    def fixed(key):
        return key

    @property
    def state(self):
        return "shut"


def plain(key, *, lock=None):
    return (key, lock)


async def coroutine(key):
    return key


def generator(key):
    yield key
    return "ended"


async def async_generator(key):
    yield key


def stand_in(guard, **without):
    return without_guard._like(guard, without)


def test_a_function_returns_nothing_or_what_the_entry_says():
    assert stand_in(plain)("key") is None
    assert stand_in(plain, returns=False)("key") is False


def test_a_function_can_return_an_argument_however_it_was_passed():
    assert stand_in(plain, argument="key")("key") == "key"
    assert stand_in(plain, argument="key")(key="key") == "key"
    assert stand_in(plain, argument="lock")("key", lock="lock") == "lock"


def test_a_function_can_raise_or_call_something_else():
    with pytest.raises(LookupError):
        stand_in(plain, raises="builtins:LookupError")("key")
    assert stand_in(plain, calls="builtins:len")("key") == 3


def test_a_coroutine_function_stays_one():
    assert asyncio.run(stand_in(coroutine, returns=1)("key")) == 1


def test_a_generator_yields_nothing_and_returns():
    iterator = stand_in(generator, returns=1)("key")
    with pytest.raises(StopIteration) as ended:
        next(iterator)
    assert ended.value.value == 1


def test_an_async_generator_yields_nothing():
    async def collect():
        return [value async for value in stand_in(async_generator)("key")]

    assert asyncio.run(collect()) == []


def entry(guard, **without):
    return guarantees.Guarantee("TOY-1", "A sentence.", "prevented", "toy", guard, without)


@pytest.fixture
def toy(monkeypatch):
    """A module that is loaded as if it were ours, and another that imported from it."""
    owner, user = ModuleType("agent_saga_toy"), ModuleType("agent_saga_toy.user")
    vars(owner).update(plain=plain, Door=type("Door", (Door,), dict(vars(Door))))
    vars(user).update(plain=plain)
    monkeypatch.setitem(sys.modules, owner.__name__, owner)
    monkeypatch.setitem(sys.modules, user.__name__, user)
    return owner, user


def remove(monkeypatch, guard, **without):
    chosen = entry(f"agent_saga_toy:{guard}", **without)
    monkeypatch.setattr(guarantees, "load", lambda: {chosen.id: chosen})
    without_guard.remove(chosen.id)


def test_every_module_that_holds_the_guard_loses_it(toy, monkeypatch):
    remove(monkeypatch, "plain", returns=7)
    assert [module.plain("key") for module in toy] == [7, 7]


@pytest.mark.parametrize("name", ["shut", "fixed"])
def test_a_method_is_replaced_on_its_class(toy, monkeypatch, name):
    remove(monkeypatch, f"Door.{name}", returns=7)
    assert getattr(toy[0].Door(), name)("key") == 7


def test_a_property_is_replaced_on_its_class(toy, monkeypatch):
    remove(monkeypatch, "Door.state", returns="open")
    assert toy[0].Door().state == "open"


def test_a_process_that_a_test_starts_loses_the_guard_too(monkeypatch):
    name = next(iter(guarantees.load()))
    guard = guarantees.load()[name].guard
    program = (
        "from tools.guarantees import resolve\n"
        f"owner, name = resolve({guard!r})\n"
        "print(getattr(owner, name).__wrapped__.__name__)"
    )
    paths = [str(without_guard.SITE), str(guarantees.ROOT)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), without_guard.VARIABLE: name}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == guard.rpartition(":")[2].rpartition(".")[2]


def codes(monkeypatch, *answers):
    replies = iter(answers)
    monkeypatch.setattr(guards, "_FULL", True)
    monkeypatch.setattr(guards, "_files", lambda _name: ["tests/test_any.py"])
    monkeypatch.setattr(guards, "_pytest", lambda *_: (next(replies), ""))


@pytest.mark.parametrize(
    ("answers", "proven"),
    [((0, 1), True), ((0, 0), False), ((1,), False), ((5,), False), ((0, 2), False)],
)
def test_a_guard_is_proven_by_green_with_it_and_red_without_it(monkeypatch, answers, proven):
    codes(monkeypatch, *answers)
    assert guards._proven(entry("any:thing")) is proven


def test_a_guarantee_without_tests_is_not_proven(monkeypatch):
    monkeypatch.setattr(guards, "_files", lambda _name: [])
    assert not guards._proven(entry("any:thing"))
