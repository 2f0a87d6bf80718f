from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.errors import SecretLeak
from agent_saga.wal.encoding import decode, exact, mac, masked

pytestmark = pytest.mark.property

TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**80), max_value=2**80)
    | st.floats(allow_nan=False)
    | TEXTS
    | st.binary(max_size=40)
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=-3))]))
    | st.times()
    | st.timedeltas()
    | st.uuids()
)
KEYS = TEXTS | st.integers() | st.booleans() | st.none() | st.sampled_from(["$t", "v", "$"])
HASHABLE = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
VALUES = st.recursive(
    SCALARS | st.frozensets(HASHABLE, max_size=3) | st.sets(HASHABLE, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def same(left: object, right: object) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right) or left != right:
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = zip(left.items(), right.items(), strict=True)
        return all(same(a, c) and same(b, d) for (a, b), (c, d) in pairs)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return all(same(a, b) for a, b in zip(left, right, strict=True))
    return True


@given(VALUES)
def test_what_is_taken_exactly_comes_back_exactly(value: object) -> None:
    try:
        fragment = exact(value, what="it")
    except SecretLeak:
        return
    assert same(decode(fragment), value)
    json.loads(fragment)
    assert b"\0" not in fragment
    assert b"\n" not in fragment


@given(VALUES)
def test_what_is_called_faithful_comes_back_equal(value: object) -> None:
    fragment, faithful = masked(value)
    back = decode(fragment)
    if faithful:
        assert same(back, value)
        assert fragment == exact(value, what="it")


@given(VALUES)
def test_a_mac_does_not_change_between_two_looks(value: object) -> None:
    assert mac(b"salt", value) == mac(b"salt", value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: (
    st.lists(inner) | st.dictionaries(st.sampled_from(["$t", "v", "a"]), inner)
), max_leaves=20))  # fmt: skip
def test_decoding_foreign_json_never_raises(value: object) -> None:
    decode(json.dumps(value).encode())
