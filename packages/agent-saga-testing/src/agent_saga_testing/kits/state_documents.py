"""The state kit's cases about documents, keys and transactions, as one caller sees them."""

# ruff: noqa: D102, S101 - a case is a test, and its name is its sentence

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import pytest

from agent_saga.errors import NotRecordable, StateError
from agent_saga.state.base import Capabilities, Change, Docs, StateStore
from agent_saga_testing.kits.conformance import Conformance
from agent_saga_testing.kits.state_rules import EXACT, count_up, put

__all__ = ["StateDocuments"]


def _deep(levels: int) -> dict[str, Any]:
    doc: dict[str, Any] = {}
    for _ in range(levels):
        doc = {"d": doc}
    return doc


def _cyclic() -> dict[str, Any]:
    doc: dict[str, Any] = {}
    doc["self"] = doc
    return doc


class _Text(str):
    __slots__ = ()


NOT_PLAIN: dict[str, Any] = {
    "bytes": {"v": b"x"},
    "cyclic": _cyclic(),
    "deep": _deep(10_000),
    "huge integer": {"v": 2**53 + 1},
    "infinity": {"v": float("-inf")},
    "integer key": {1: "x"},
    "large": {"v": "x" * (2 << 20)},
    "list": [1],
    "lone surrogate": {"v": "\ud800"},
    "lone surrogate in a key": {"\ud800": 1},
    "not a number": {"v": float("nan")},
    "object": {"v": object()},
    "subclass": {"v": _Text("x")},
    "tuple": {"v": (1, 2)},
}

ODD_KEYS = ("a/b", "../../etc/passwd", "a\x00b", "a\nb", "50%_x", "'\";--", "é", "\U0010ffff", " ")

BAD_KEYS = {
    "empty": "",
    "lone surrogate": "\udcff",
    "no string": 7,
    "too long": "k" * 2000,
}


class StateDocuments(Conformance):
    """What a store keeps, refuses and answers."""

    capabilities: ClassVar[Capabilities]

    def test_declared_capabilities_are_the_stores(self, store: StateStore) -> None:
        assert store.capabilities == type(self).capabilities

    def test_address_names_the_scheme(self, store: StateStore) -> None:
        assert store.address.partition(":")[1] == ":"

    def test_what_was_never_stored_is_none(self, store: StateStore) -> None:
        assert store.get("nothing") is None
        assert store.scan() == []
        assert store.transact(["nothing"], lambda docs: Change(docs["nothing"])) is None

    def test_documents_come_back_equal(self, store: StateStore) -> None:
        store.transact(["kept"], partial(put, kept=EXACT))
        assert store.get("kept") == EXACT
        assert store.scan() == [("kept", EXACT)]

    def test_documents_are_copies(self, store: StateStore) -> None:
        mine = {"list": [1]}
        store.transact(["kept"], partial(put, kept=mine))
        mine["list"].append(2)
        (store.get("kept") or {})["list"].append(3)
        assert store.get("kept") == {"list": [1]}

    def test_a_document_changed_in_place_is_stored_when_put(self, store: StateStore) -> None:
        def grow(docs: Docs) -> Change[None]:
            doc = docs["kept"] or {"list": []}
            doc["list"].append(len(doc["list"]))
            return Change(None, {"kept": doc})

        for _ in range(3):
            store.transact(["kept"], grow)
        assert store.get("kept") == {"list": [0, 1, 2]}

    def test_none_removes(self, store: StateStore) -> None:
        store.transact(["kept"], partial(put, kept={}))
        assert store.get("kept") == {}
        store.transact(["kept"], partial(put, kept=None))
        assert store.get("kept") is None
        store.transact(["kept"], partial(put, kept=None))
        assert store.scan() == []

    @pytest.mark.parametrize("durable", [True, False])
    def test_both_durabilities_store(self, store: StateStore, durable: bool) -> None:
        store.transact(["kept"], partial(put, kept={"durable": durable}), durable=durable)
        assert store.get("kept") == {"durable": durable}

    @pytest.mark.parametrize("answer", [None, 0, (), ValueError("an answer"), NotRecordable("x")])
    def test_the_answer_is_the_rules_whatever_it_is(self, store: StateStore, answer: Any) -> None:
        assert store.transact(["kept"], lambda _: Change(answer, {"kept": {}})) is answer

    @pytest.mark.parametrize("what", sorted(NOT_PLAIN))
    def test_what_json_cannot_carry_is_refused(self, store: StateStore, what: str) -> None:
        store.transact(["kept", "other"], partial(put, kept={"n": 1}))
        with pytest.raises(NotRecordable):
            store.transact(["kept", "other"], partial(put, other={"n": 2}, kept=NOT_PLAIN[what]))
        assert store.scan() == [("kept", {"n": 1})]

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_odd_keys_are_only_names(self, store: StateStore, key: str) -> None:
        store.transact([key], lambda _: Change(None, {key: {"key": key}}))
        assert store.get(key) == {"key": key}
        assert store.scan(key) == [(key, {"key": key})]

    @pytest.mark.parametrize("what", sorted(BAD_KEYS))
    def test_bad_keys_are_refused(self, store: StateStore, what: str) -> None:
        key: Any = BAD_KEYS[what]
        with pytest.raises(NotRecordable):
            store.transact([key], lambda _: Change(None, {key: {}}))
        with pytest.raises(NotRecordable):
            store.get(key)

    def test_scan_takes_the_prefix_literally_and_sorts(self, store: StateStore) -> None:
        keys = ["a", "a%", "a%b", "a_", "ab", "a\U0010ffff", "b", "A"]
        store.transact(keys, lambda docs: Change(None, {key: {} for key in docs}))
        for prefix in ["", "a", "a%", "a_", "ab", "a\U0010ffff", "c"]:
            wanted = sorted(key for key in keys if key.startswith(prefix))
            assert [key for key, _ in store.scan(prefix)] == wanted

    def test_a_rule_that_raises_changes_nothing(self, store: StateStore) -> None:
        store.transact(["counter"], count_up)
        error = LookupError("the rule's own")

        def fails(docs: Docs) -> Change[None]:
            (docs["counter"] or {})["n"] = 99
            raise error

        with pytest.raises(LookupError) as caught:
            store.transact(["counter"], fails)
        assert caught.value is error
        assert store.transact(["counter"], count_up) == 2

    def test_a_rule_may_put_only_what_it_named(self, store: StateStore) -> None:
        with pytest.raises(StateError):
            store.transact(["a"], lambda _: Change(None, {"a": {}, "b": {}}))
        assert store.scan() == []

    def test_a_rule_may_not_use_the_store(self, store: StateStore) -> None:
        def uses_it(_docs: Docs) -> Change[Any]:
            return Change(store.transact(["counter"], count_up))

        with pytest.raises(StateError):
            store.transact(["counter"], uses_it)
        assert store.transact(["counter"], count_up) == 1

    def test_a_rule_that_gives_no_change_is_refused(self, store: StateStore) -> None:
        rule: Any = lambda _: None  # noqa: E731
        with pytest.raises(StateError):
            store.transact(["counter"], rule)
        assert store.transact(["counter"], count_up) == 1
