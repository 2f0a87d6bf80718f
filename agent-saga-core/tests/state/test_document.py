"""Documents are carried exactly, or refused."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_saga.errors import NotRecordable
from agent_saga.state.document import decode, encode

# A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
ANYTHING = st.recursive(
    VALUES
    | st.floats()
    | st.integers()
    | st.binary()
    | st.text()
    | st.decimals()
    | st.datetimes()
    | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.sets(st.integers())
    ),
    max_leaves=10,
)


def _same(one, other):
    """Equal, and of equal types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return repr(one) == repr(other)


@PATIENT
@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_plain_documents_come_back_the_same(doc):
    assert _same(decode(encode(doc), where="here"), doc)


@PATIENT
@given(st.dictionaries(st.text(), ANYTHING, max_size=5) | ANYTHING)
def test_anything_else_comes_back_the_same_or_is_refused(doc):
    try:
        body = encode(doc)
    except NotRecordable:
        return
    assert _same(decode(body, where="here"), doc)
