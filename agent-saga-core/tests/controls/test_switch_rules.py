"""The rules of the kill switch: scopes that cover something, and changes that lose nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent_saga.controls.switch import document, scopes
from agent_saga.controls.switch.document import Asked, Known, Switches
from agent_saga.errors import ConfigurationError, StateError

TOOLS = {"wire.send": ["money"], "wire.cancel": [], "search": [], "Mail.send": ["pii", "money"]}


@pytest.mark.parametrize("scope", ["*", "tool:wire.send", "tool:wire.*", "tag:money", "tool:a b"])
def test_a_scope_of_the_right_form_is_taken_as_it_is(scope):
    assert scopes.checked(scope) == scope


@pytest.mark.parametrize(
    "scope",
    [
        "",
        " ",
        "tool:",
        "tag:",
        "tool:*",
        "tool:str*",
        "tool:*.send",
        "tool:wire.*.x",
        "tool:.*",
        "tag:*",
        "tag:mon*",
        "Tool:wire.send",
        "TOOL:wire.send",
        "tools:wire.send",
        "tool: wire.send",
        "tool:wire.send ",
        "wire.send",
        "**",
        "all",
        "tool:a\nb",
        "tool:" + "x" * 400,
        None,
        5,
        b"*",
    ],
)
def test_a_scope_that_covers_nothing_by_its_form_is_refused_with_the_forms(scope):
    with pytest.raises(ConfigurationError) as caught:
        scopes.checked(scope)
    assert "tool:NAME" in str(caught.value)


def test_a_refusal_says_which_form_is_near():
    with pytest.raises(ConfigurationError, match=r"as in tool:str\.\*"):
        scopes.checked("tool:str*")
    with pytest.raises(ConfigurationError, match="every tool is"):
        scopes.checked("tool:*")
    with pytest.raises(ConfigurationError, match=r"write tool:wire\.send"):
        scopes.checked("Tool:wire.send")


@pytest.mark.parametrize(
    ("scope", "near"),
    [
        ("tool:wire.sned", "tool:wire.send"),
        ("tool:WIRE.SEND", "tool:wire.send"),
        ("tool:wires.*", "tool:wire.*"),
        ("tag:mony", "tag:money"),
        ("tool:mail.send", "tool:Mail.send"),
    ],
)
def test_a_scope_that_covers_no_known_tool_is_told_with_the_nearest(scope, near):
    assert not scopes.covers_any(scope, TOOLS.items())
    assert near in scopes.nearest(scope, TOOLS.items())


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        ("*", set(TOOLS)),
        ("tool:wire.send", {"wire.send"}),
        ("tool:wire.*", {"wire.send", "wire.cancel"}),
        ("tag:money", {"wire.send", "Mail.send"}),
        ("tool:wire", set()),
        ("tool:Wire.*", set()),
    ],
)
def test_a_scope_covers_exact_names_families_and_tags(scope, covered):
    assert {tool for tool, tags in TOOLS.items() if scopes.covers(scope, tool, tags)} == covered


# --- the document --------------------------------------------------------------------------------

NAMES = st.sampled_from(["*", "tool:a", "tool:b.*", "tag:t"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("halt"), NAMES, st.sampled_from([None, 5, 50])),
        st.tuples(st.just("drain"), NAMES, st.sampled_from([None, 5, 50])),
        st.tuples(st.just("lift"), NAMES, st.none()),
        st.tuples(st.just("quarantine"), st.sampled_from(["s1", "s2"]), st.none()),
        st.tuples(st.just("release"), st.sampled_from(["s1", "s2"]), st.none()),
    ),
    max_size=25,
)


def _halt(doc, scope, *, at=0, mode="halt", until=None, floor=0):
    return document.add_halt(
        doc, floor=floor, scope=scope, mode=mode, reason="r", by="b", at=at, until=until
    )


@given(CHANGES)
def test_a_document_says_what_a_plain_model_says(changes):
    doc = None
    halts: list[tuple[str, str, int | None]] = []
    quarantined: set[str] = set()
    for at, (kind, name, ttl) in enumerate(changes, 1):
        halts = [h for h in halts if h[2] is None or at < h[2]]
        until = None if ttl is None else at + ttl
        if kind in ("halt", "drain"):
            doc, _ = _halt(doc, name, at=at, mode=kind, until=until)
            halts = [h for h in halts if h != (name, kind, until)] + [(name, kind, until)]
        elif kind == "lift":
            doc, (_, lifted) = document.lift(doc, floor=0, scope=name, at=at)
            assert len(lifted) == len([h for h in halts if h[0] == name])
            halts = [h for h in halts if h[0] != name]
        elif kind == "quarantine":
            doc, _ = document.quarantine(doc, floor=0, saga=name, reason="r", by="b", at=at)
            quarantined.add(name)
        else:
            doc, (_, out) = document.release(doc, floor=0, saga=name)
            assert bool(out) == (name in quarantined)
            quarantined.discard(name)
        found = document.read(doc)
        assert [(e.scope, e.mode, e.until) for e in found.halts if e.holds(at)] == halts
        assert set(found.quarantined) == quarantined


@given(CHANGES)
def test_the_revision_only_rises(changes):
    doc, rev = None, 0
    for kind, name, _ in changes:
        if kind in ("halt", "drain"):
            doc, after = _halt(doc, name)
        elif kind == "lift":
            doc, (after, _) = document.lift(doc, floor=rev, scope=name, at=0)
        elif kind == "quarantine":
            doc, after = document.quarantine(doc, floor=rev, saga=name, reason="r", by="b", at=0)
        else:
            doc, (after, _) = document.release(doc, floor=rev, saga=name)
        assert after.rev >= rev
        assert document.read(doc, floor=after.rev).rev == after.rev
        rev = after.rev


ODD = {
    "a mode that there is not": ("halts", "mode", "halted"),
    "a quarantine among the halts": ("halts", "mode", "quarantine"),
    "a target that covers nothing": ("halts", "scope", "wire"),
    "an empty target": ("halts", "scope", ""),
    "another saga than its name": ("quarantined", "scope", "s2"),
    "a halt among the sagas": ("quarantined", "mode", "halt"),
    "a quarantine with an end": ("quarantined", "until", 5),
}


@pytest.mark.guarantee("HALT-3")
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_entry_that_nobody_can_have_set_is_damage_and_not_weaker(odd):
    doc, _ = _halt(None, "tool:a")
    doc, _ = document.quarantine(doc, floor=0, saga="s1", reason="r", by="b", at=0)
    document.read(doc)
    part, field, value = odd
    entry = doc["halts"][0] if part == "halts" else doc["quarantined"]["s1"]
    entry[field] = value
    with pytest.raises(StateError, match="cannot be understood"):
        document.read(doc)


def test_a_drain_stops_what_began_after_it_only():
    _, switches = _halt(None, "tool:a", at=100, mode="drain")
    assert switches.against(Asked("a", (), 200, began=99)) is None
    assert switches.against(Asked("a", (), 200, began=100)) is not None
    assert switches.against(Asked("b", (), 200, began=150)) is None


@given(
    step=st.integers(-(10**9), 10**9),
    gone=st.floats(0.01, 200),
    mode=st.sampled_from(["halt", "drain"]),
)
def test_a_clock_step_opens_nothing_to_whoever_knew_before_it(step, gone, mode):
    """A halt or drain of a hundred seconds, set at ten and known at once; then the clock steps."""
    second = 1_000_000
    _, switches = _halt(None, "*", at=10 * second, mode=mode, until=110 * second)
    known = switches.known({}, Known(10 * second, 1000.0))
    now, monotonic = int((10 + gone) * second) + step, 1000.0 + gone
    asked = Asked("a", (), now, monotonic, began=now, opened=monotonic)
    forbids = switches.against(asked, known) is not None
    if gone < 99.9:
        assert forbids
    if gone > 100.1 and step >= 0:
        assert not forbids
    begun_before = replace(asked, began=9 * second, opened=999.0)
    if mode == "drain":
        assert switches.against(begun_before, known) is None


def test_what_is_known_is_known_since_it_was_read_first():
    _, switches = _halt(None, "*", at=1)
    first = switches.known({}, Known(1, 1.0))
    assert switches.known(first, Known(5, 5.0)) == first
    doc, switches = _halt(None, "*", at=1)
    _, switches = _halt(doc, "tool:a", at=2)
    assert set(switches.known(first, Known(5, 5.0)).values()) == {Known(1, 1.0), Known(5, 5.0)}


def test_a_halt_with_an_end_is_over_then():
    _, switches = _halt(None, "*", at=100, until=200)
    assert switches.against(Asked("a", (), 199)) is not None
    assert switches.against(Asked("a", (), 200)) is None


@pytest.mark.parametrize(
    "doc",
    [
        {},
        {"rev": 1},
        {"rev": True, "halts": [], "quarantined": {}},
        {"rev": -1, "halts": [], "quarantined": {}},
        {"rev": 1, "halts": None, "quarantined": {}},
        {"rev": 1, "halts": [{}], "quarantined": {}},
        {"rev": 1, "halts": [{"scope": "*"}], "quarantined": {}},
        {"rev": 1, "halts": [], "quarantined": []},
        {"rev": 1, "halts": [], "quarantined": {"s": "x"}},
        {"rev": "1", "halts": [], "quarantined": {}},
    ],
)
def test_a_document_that_cannot_be_understood_is_an_error_never_nothing_halted(doc):
    with pytest.raises(StateError):
        document.read(doc)


def test_a_document_that_was_lost_or_put_back_is_an_error():
    old, _ = _halt(None, "tool:a")
    with pytest.raises(StateError, match="may be lost"):
        document.read(None, floor=1)
    with pytest.raises(StateError, match="may be lost"):
        document.read(old, floor=2)


def test_after_a_loss_the_next_halt_halts_everything_until_somebody_has_looked():
    doc, switches = _halt(None, "tool:a", floor=7)
    assert {entry.scope for entry in switches.halts} == {"*", "tool:a"}
    assert switches.against(Asked("anything", (), 1)) is not None
    doc, (after, _) = document.lift(doc, floor=switches.rev, scope="*", at=1)
    assert [entry.scope for entry in document.read(doc, floor=after.rev).halts] == ["tool:a"]


def test_a_loss_is_put_right_by_lifting_everything_by_name():
    with pytest.raises(StateError):
        document.lift(None, floor=7, scope="tool:a", at=1)
    doc, (switches, lifted) = document.lift(None, floor=7, scope="*", at=1)
    assert lifted
    assert document.read(doc, floor=switches.rev) == Switches(8)
