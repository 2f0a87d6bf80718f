"""Ids and keys: the same everywhere, never the same for two things."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from agent_saga.domain.identity import (
    FALLBACK,
    FORWARD,
    INVERSE,
    Ordinals,
    derived_key,
    given_key,
    idempotency_key,
    joined,
    new_saga_id,
    saga_id_of,
    step_id,
)

PARTS = st.lists(st.text(), max_size=4).map(tuple)


def test_saga_ids_are_new_and_safe_in_names():
    ids = {new_saga_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(one) == 16 and one.replace("-", "a").replace("_", "a").isalnum() for one in ids)


@given(PARTS, PARTS)
def test_no_two_lists_of_parts_join_to_the_same_bytes(first, second):
    assert (joined(first) == joined(second)) == (first == second)


def test_joining_is_no_concatenation():
    assert joined(("ab", "c")) != joined(("a", "bc"))
    assert joined(("a:b",)) != joined(("a", "b"))
    assert joined(("\ud800",)) != joined(("\ud801",))
    assert joined(()) != joined(("",))


@given(PARTS, st.text(), st.integers(1, 99), st.text())
def test_a_derived_key_is_never_a_given_one(path, tool, ordinal, key):
    assert derived_key(path, tool, ordinal) != given_key(path, tool, key)
    assert derived_key(path, tool, ordinal) != derived_key(path, tool, ordinal + 1)


def test_a_step_id_is_a_part_of_the_digest_of_saga_and_key():
    key = derived_key(("a",), "pay", 1)
    digest = sha256(joined(("saga", *key))).digest()[:16]
    assert len(step_id("saga", key)) == 22
    assert step_id("saga", key) == step_id("saga", key)
    assert step_id("saga", key) != step_id("saga2", key)
    import base64

    assert base64.urlsafe_b64decode(step_id("saga", key) + "==") == digest


def test_idempotency_keys_differ_in_everything_they_are_made_of():
    keys = {
        idempotency_key(saga, step, generation, purpose)
        for saga in ("s", "t")
        for step in ("a", "b")
        for generation in (0, 1, 11)
        for purpose in (FORWARD, INVERSE, FALLBACK)
    }
    assert len(keys) == 36
    assert all(len(key) == 64 and int(key, 16) >= 0 for key in keys)


def test_an_idempotency_key_never_changes_between_versions():
    """A provider has seen it; another release must give the same one."""
    wanted = sha256(b"4:saga4:step1:07:forward").hexdigest()
    assert idempotency_key("saga", "step", 0, FORWARD) == wanted


@given(st.text(), PARTS, st.text())
def test_ordinals_count_as_derived_keys_do(saga, path, tool):
    ordinals = Ordinals(saga, path, tool)
    for number in (1, 2, 3):
        key, step = ordinals.take()
        assert key == derived_key(path, tool, number)
        assert step == step_id(saga, key)
    ordinals.go_on_after(11)
    ordinals.go_on_after(5)
    assert ordinals.take()[0] == derived_key(path, tool, 12)


@given(st.text())
def test_the_saga_id_of_a_key_of_one_s_own_is_always_the_same(key):
    assert saga_id_of(key) == saga_id_of(key)
    assert len(saga_id_of(key)) == 16
    assert not saga_id_of(key).startswith("-")
    assert saga_id_of(key) != saga_id_of(f"{key}x")
