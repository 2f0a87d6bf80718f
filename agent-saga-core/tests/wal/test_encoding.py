from __future__ import annotations

import datetime as dt
import enum
import json
import math
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from agent_saga.errors import NotRecordable, SecretLeak, WALCorrupt
from agent_saga.wal.encoding import (
    Fragment,
    assert_no_secrets,
    compose,
    decode,
    exact,
    listed,
    literal,
    mac,
    masked,
)
from agent_saga.wal.limits import MAX_PAYLOAD, MAX_TEXT

SALT = b"salt" * 4
Point = namedtuple("Point", "x y")  # noqa: PYI024 - a user's named tuple


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __iter__(self):
        raise RuntimeError("iter")

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("getattr")


class HostileMeta(type):
    def __getattribute__(cls, name: str) -> object:
        raise RuntimeError(name)


class HostileType(metaclass=HostileMeta):
    pass


@dataclass
class Order:
    number: int
    note: str


CARRIED = [
    None,
    True,
    0,
    -(2**53),
    2**53 + 1,
    -(2**200),
    1.5,
    -0.0,
    1e300,
    math.inf,
    -math.inf,
    "",
    "text",
    "zero \x00 and \u2028 and \U0001f600",
    "lone \ud800 surrogate",
    b"",
    b"bytes \x00\xff",
    Decimal("1.10"),
    Decimal("-1E+30"),
    Decimal("Infinity"),
    dt.date(2026, 11, 29),
    dt.datetime(2026, 11, 29, 1, 2, 3, 4),  # noqa: DTZ001 - naive on purpose
    dt.datetime(2026, 11, 29, tzinfo=dt.UTC),
    dt.datetime(2026, 11, 29, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30, seconds=7))),
    dt.time(1, 2, 3),
    dt.time(1, 2, 3, tzinfo=dt.UTC),
    dt.timedelta(days=-3, seconds=4, microseconds=5),
    UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479"),
    [],
    [1, [2, [3]]],
    (),
    (1, (2, "x")),
    {1, 2, 3},
    frozenset({"a", "b"}),
    {(1, 2), (3, 4)},
    {},
    {"a": 1, "b": {"c": [None]}},
    {1: "int", False: "bool"},
    {None: 0, 1.5: 1, "text": 2, Decimal(1): 3, dt.date(2026, 1, 1): 4},
    {"$t": "decimal", "v": "1.10"},
    {"$t": "dict", "v": [["a", 1]]},
    {"nested": {"$t": "bytes", "v": "!"}},
    {"a\ud800": 1},
    {"a\x00b": 1},
    {"": ""},
]


@pytest.mark.parametrize("value", CARRIED, ids=ascii)
def test_what_plain_data_can_say_comes_back_as_it_was(value: object) -> None:
    for fragment in (exact(value, what="it"), masked(value)[0]):
        back = decode(fragment)
        assert back == value
        assert type(back) is type(value)
        json.loads(fragment)
    assert masked(value)[1]


def test_nan_comes_back_as_nan() -> None:
    fragment, faithful = masked([math.nan])
    assert faithful
    assert math.isnan(decode(fragment)[0])
    assert math.isnan(decode(exact(math.nan, what="it")))


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Level.HIGH,
        Point(1, 2),
        OrderedDict(a=1),
        defaultdict(list, a=[1]),
        Order(1, "x"),
        Hostile(),
        HostileType(),
        object(),
        print,
        bytearray(b"x"),
        memoryview(b"x"),
        range(3),
        1j,
        dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        {(1, 2): "tuple key"},
        {frozenset({1}): "set key"},
        {Colour.RED: 1},
    ],
    ids=lambda value: type.__getattribute__(type(value), "__name__"),
)
def test_what_cannot_come_back_is_refused_exactly_and_described_otherwise(value: object) -> None:
    for wrapped in (value, {"here": [value]}):
        with pytest.raises(NotRecordable):
            exact(wrapped, what="the arguments")
        fragment, faithful = masked(wrapped)
        assert not faithful
        decode(fragment)
        json.loads(fragment)


def test_a_refusal_names_the_place_inside_the_value() -> None:
    with pytest.raises(NotRecordable, match=r"the arguments\['order'\]\[2\]\['who'\]"):
        exact({"order": [1, 2, {"who": object()}]}, what="the arguments")
    with pytest.raises(SecretLeak, match=r"the arguments\['a'\]\[0\]\['password'\]") as caught:
        exact({"a": [{"password": "hunter2"}]}, what="the arguments")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "sk_live_0123456789abcdef",
        " sk_live_0123456789abcdef",
        b"sk_live_0123456789abcdef",
        {"note": "Bearer abcdef0123456789abcdef"},
        {"deep": [{"deeper": {"pwd": "x"}}]},
        {"password": 1234},
        {"token": ["a", "b"]},
        {"token_count": "sk_live_0123456789abcdef"},
        {"sk_live_0123456789abcdef": 1},
        ("sk_live_0123456789abcdef",),
        {1: "sk_live_0123456789abcdef"},
        {"padding": "x" * 5000 + " sk_live_0123456789abcdef"},
    ],
    ids=ascii,
)
def test_a_secret_is_masked_forward_and_refused_in_an_inverse(value: object) -> None:
    fragment, faithful = masked(value)
    assert not faithful
    assert b"0123456789abcdef" not in fragment
    assert b"1234" not in fragment
    assert b"***" in fragment
    with pytest.raises(SecretLeak):
        exact(value, what="the arguments")
    with pytest.raises(SecretLeak):
        assert_no_secrets({"deep": [value]})


def test_a_secret_beside_something_odd_is_still_found() -> None:
    with pytest.raises(SecretLeak):
        assert_no_secrets({"odd": object(), "password": "hunter2"})
    assert_no_secrets({"odd": object(), "fine": 1})


@pytest.mark.parametrize("value", [None, True, False, ""])
def test_an_empty_secret_field_is_no_secret(value: object) -> None:
    assert masked({"password": value}) == (exact({"password": value}, what="it"), True)


def test_a_secret_that_a_cut_would_halve_is_masked_first() -> None:
    text = "x" * (MAX_TEXT - 12) + " sk_live_0123456789abcdef" + "y" * MAX_TEXT
    fragment, faithful = masked(text)
    assert not faithful
    assert b"sk_live" not in fragment


def test_ten_megabytes_are_bounded() -> None:
    for value in (
        "x" * 10_000_000,
        b"x" * 10_000_000,
        ["x" * 1000] * 10_000,
        list(range(2_000_000)),
        {str(n): n for n in range(200_000)},
        1 << 80_000_000,
        "\ud800" * 10_000_000,
        {"k" * 10_000_000: 1},
    ):
        fragment, faithful = masked(value)
        assert not faithful
        assert len(fragment) <= 2 * MAX_PAYLOAD
        decode(fragment)
        with pytest.raises(NotRecordable):
            exact(value, what="it")


def test_cycles_and_depth_are_bounded() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    mapping: dict[str, object] = {}
    mapping["self"] = mapping
    wide: list[object] = []
    wide.extend([wide, wide])
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    for value in (cycle, mapping, wide, deep):
        fragment, faithful = masked(value)
        assert not faithful
        decode(fragment)
        with pytest.raises(NotRecordable):
            exact(value, what="it")
        assert mac(SALT, value) == mac(SALT, value)


def test_a_result_that_changes_under_the_walk_never_fails_the_step() -> None:
    class Growing(dict):
        def items(self):
            raise RuntimeError("dictionary changed size during iteration")

    assert not masked({"a": Growing(a=1)})[1]


def test_a_fragment_is_all_that_can_be_composed() -> None:
    assert compose(a=literal(1), b=literal(["x"])) == b'{"a":1,"b":["x"]}'
    assert compose() == b"{}"
    assert type(compose(a=literal(1))) is Fragment
    with pytest.raises(TypeError):
        compose(a=b"1")  # type: ignore[arg-type]
    assert listed([literal(1), literal(["x"])]) == b'[1,["x"]]'
    assert listed([]) == b"[]"
    assert type(listed([literal(1)])) is Fragment
    with pytest.raises(TypeError):
        listed([b"1"])  # type: ignore[list-item]


@pytest.mark.parametrize("name", [b'"$t"', rb'"\u0024t"', rb'"$\u0074"'])
def test_a_tag_is_read_however_its_name_is_written(name: bytes) -> None:
    assert decode(b'[{%b:"decimal","v":"1.10"}]' % name) == [Decimal("1.10")]


def test_what_looks_like_a_type_marker_runs_no_code() -> None:
    for text in (
        b'{"$t":"builtins.eval","v":"1/0"}',
        b'{"__reduce__":["os.system",["true"]]}',
        b'{"$t":"object","v":"os.system"}',
        b'{"$t":"decimal","v":[1]}',
        b'{"$t":"uuid","v":"x"}',
        b'{"$t":"set","v":[[1]]}',
        b'{"$t":"dict","v":[[1,2,3]]}',
        b'{"$t":"dict","v":{"a":1}}',
        b'{"$t":"tuple","v":"abc"}',
        b'{"$t":"int","v":"12"}',
        b'{"$t":"timedelta","v":[1e308,1,1]}',
        b'{"$t":"datetime","v":null}',
        b'{"$t":["decimal"],"v":"1"}',
        b'{"$t":"decimal","v":"1","more":1}',
    ):
        assert decode(text) == json.loads(text)


def test_bytes_that_are_no_json_are_told() -> None:
    for text in (b"", b"{", b"\xff", b'"\xff"', b"[" * 100_000):
        with pytest.raises(WALCorrupt):
            decode(text)


def test_a_mac_is_equal_for_equal_values() -> None:
    pairs = [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: "x", 2: "y"}, {2: "y", 1: "x"}),
        ({3, 1, 2}, {2, 3, 1}),
        (Order(1, "x"), Order(1, "x")),
        (Colour.RED, Colour.RED),
        ({"password": "hunter2"}, {"password": "hunter2"}),
        ((1, 2), [1, 2]),
        (
            dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2026, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        ),
        ("x" * 10_000_000, "x" * 10_000_000),
    ]
    for left, right in pairs:
        assert mac(SALT, left) == mac(SALT, right)
        assert mac(SALT, {"a": [left]}) == mac(SALT, {"a": [right]})
        assert len(mac(SALT, left)) == 16


def test_a_mac_differs_for_different_values() -> None:
    values = [
        1,
        "1",
        True,
        None,
        [1],
        {"a": 1},
        {"a": 2},
        {1: 1},
        {"1": 1},
        b"1",
        Decimal(1),
        Order(1, "x"),
        Order(2, "x"),
        Colour.RED,
        "red",
        {"password": "hunter2"},
        {"password": "hunter3"},
        ["x" * 2_000_000, 1],
        ["x" * 2_000_000, 2],
        math.nan,
        math.inf,
        object(),
        object(),
    ]
    assert len({mac(SALT, value) for value in values}) == len(values)
    assert mac(b"other salt", 1) != mac(SALT, 1)


def test_an_object_without_state_equals_nothing_not_even_itself_later() -> None:
    thing = object()
    assert mac(SALT, thing) != mac(SALT, thing)
    assert mac(SALT, Hostile()) != mac(SALT, Hostile())
