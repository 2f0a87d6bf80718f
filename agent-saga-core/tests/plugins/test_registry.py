"""Handlers by name: who owns one, what it promises, what is refused."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga.errors import ConfigurationError, DuplicateName, UnknownHandler
from agent_saga.plugins.registry import HandlerRegistry, Handlers, process_handlers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def refund(id: str, *, idempotency_key: str) -> str:  # noqa: A002
    return f"{id} {idempotency_key}"


async def refund_async(id: str) -> None:  # noqa: A002
    pass


class Callable:
    async def __call__(self, id: str) -> None:  # noqa: A002
        pass


@pytest.fixture
def registry() -> HandlerRegistry:
    return HandlerRegistry("compensator")


def test_a_handler_is_found_by_its_name(registry: HandlerRegistry) -> None:
    handler = registry.add("stripe.refund", refund, null_safe=True, idempotent=True, window=86_400)
    assert registry.get("stripe.refund") is handler
    assert registry.find("other") is None
    assert handler.fn is refund
    assert (handler.null_safe, handler.idempotent, handler.window) == (True, True, 86_400)
    assert list(handler.parameters) == ["id", "idempotency_key"]
    assert "stripe.refund" in registry
    assert list(registry) == ["stripe.refund"]
    assert len(registry) == 1


def test_the_owner_is_the_module_and_function_that_registered(registry: HandlerRegistry) -> None:
    owner = registry.add("refund", refund).owner
    assert owner.module == __name__
    assert owner.distribution == ""
    assert str(owner) == f"{__name__}.refund"


@pytest.mark.parametrize(
    ("fn", "is_async"),
    [
        (refund, False),
        (refund_async, True),
        (Callable(), True),
        (functools.partial(refund_async, "x"), True),
        (functools.partial(refund, "x"), False),
        (Callable().__call__, True),
        (print, False),
        (dict, False),
    ],
)
def test_whether_a_handler_is_async_is_known(
    registry: HandlerRegistry, fn: Any, is_async: bool
) -> None:
    assert registry.add("h", fn).is_async is is_async


def test_the_same_function_again_changes_nothing(registry: HandlerRegistry) -> None:
    registry.add("refund", refund)
    registry.add("refund", refund)
    assert len(registry) == 1


def test_another_function_under_a_taken_name_names_both_owners(registry: HandlerRegistry) -> None:
    registry.add("refund", refund)
    with pytest.raises(DuplicateName) as caught:
        registry.add("refund", refund_async)
    assert f"{__name__}.refund and" in str(caught.value)
    assert f"{__name__}.refund_async" in str(caught.value)
    assert registry.get("refund").fn is refund


def test_the_same_function_with_other_promises_is_refused(registry: HandlerRegistry) -> None:
    registry.add("refund", refund)
    with pytest.raises(DuplicateName):
        registry.add("refund", refund, null_safe=True)
    assert registry.get("refund").null_safe is False


def redefine(body: str, module: str = "__main__") -> Any:
    space: dict[str, Any] = {"__name__": module}
    exec(f"def again(): return {body!r}", space)
    return space["again"]


def test_at_a_prompt_a_function_defined_again_replaces(
    registry: HandlerRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add("again", redefine("old"))
    with pytest.raises(DuplicateName):
        registry.add("again", redefine("new"))
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    registry.add("again", redefine("new"))
    assert registry.get("again").fn() == "new"
    with pytest.raises(DuplicateName):
        registry.add("again", redefine("other", module="elsewhere"))


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class GeneratorCall:
    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "fn",
    [generator, async_generator, GeneratorCall(), functools.partial(generator), None, "refund"],
)
def test_what_would_run_nothing_is_refused(registry: HandlerRegistry, fn: Any) -> None:
    with pytest.raises(ConfigurationError):
        registry.add("refund", fn)
    assert len(registry) == 0


@pytest.mark.parametrize(
    "name", ["", " refund", "re\nfund", "re\0fund", "x" * 301, "\ud800", 7, None]
)
def test_a_name_that_could_not_stand_in_a_log_is_refused(
    registry: HandlerRegistry, name: Any
) -> None:
    with pytest.raises(ConfigurationError):
        registry.add(name, refund)


@pytest.mark.parametrize("window", [0, -1, float("nan"), float("inf"), True, "60"])
def test_a_window_is_a_number_of_seconds(registry: HandlerRegistry, window: Any) -> None:
    with pytest.raises(ConfigurationError):
        registry.add("refund", refund, idempotent=True, window=window)


def test_a_window_without_idempotent_says_nothing_and_is_refused(
    registry: HandlerRegistry,
) -> None:
    with pytest.raises(ConfigurationError, match="idempotent=True"):
        registry.add("refund", refund, window=60)


def test_an_unknown_handler_names_its_neighbour_and_what_to_do(registry: HandlerRegistry) -> None:
    registry.add("stripe.refund", refund)
    with pytest.raises(UnknownHandler) as caught:
        registry.get("stripe.refnd")
    assert "Did you mean 'stripe.refund'?" in str(caught.value)
    assert "--import" in str(caught.value)


def anything(*args: Any, **kwargs: Any) -> None:
    pass


def positional(id: str, /) -> None:  # noqa: A002
    pass


@pytest.mark.parametrize(
    ("fn", "given", "reason"),
    [
        (refund, ["id"], ""),
        (refund, [], "h also needs id"),
        (refund, ["id", "other"], "h has no parameter 'other'"),
        (anything, ["whatever"], ""),
        (positional, ["id"], "h has no parameter 'id'"),
        (refund_async, ["id"], ""),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    registry: HandlerRegistry, fn: Any, given: list[str], reason: str
) -> None:
    assert registry.add("h", fn).misfit(given, filled=["idempotency_key"]) == reason


def test_which_arguments_a_handler_takes(registry: HandlerRegistry) -> None:
    assert registry.add("a", refund).takes("idempotency_key")
    assert not registry.add("b", refund_async).takes("idempotency_key")
    assert registry.add("c", anything).takes("idempotency_key")
    assert not registry.add("d", positional).takes("id")


def test_what_a_block_registers_can_be_forgotten() -> None:
    handlers = Handlers()
    handlers.probers.add("kept", refund)
    with handlers.isolated():
        handlers.probers.add("forgotten", refund)
        handlers.compensators.add("forgotten", refund)
    assert list(handlers.probers) == ["kept"]
    assert len(handlers.compensators) == 0


def test_there_is_one_set_of_handlers_in_a_process() -> None:
    assert process_handlers() is process_handlers()
