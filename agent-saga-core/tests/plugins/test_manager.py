"""Loading plugins, and asking them: what is isolated and what stops the start."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga.errors import AgentSagaError, DuplicateName, PluginError
from agent_saga.plugins import specs
from agent_saga.plugins.health import Health
from agent_saga.plugins.markers import hookimpl

if TYPE_CHECKING:
    from plugins.conftest import Install, Manage

SOURCE = """
    from agent_saga.plugins.markers import hookimpl

    def refund(): ...

    @hookimpl
    def saga_register_compensators(registry):
        registry.add("acme.refund", refund)
"""


def plugin(**functions: Any) -> SimpleNamespace:
    """Return a plugin with these implementations, marked."""
    return SimpleNamespace(**{name: hookimpl(fn) for name, fn in functions.items()})


def test_installed_plugins_are_loaded_at_the_first_question(
    install: Install, manage: Manage
) -> None:
    install("acme", SOURCE, version="2.0")
    manager = manage()
    assert "acme" not in sys.modules
    assert [str(p) for p in manager.plugins() if p.name == "acme"] == ["acme (acme 2.0)"]
    assert "acme.refund" in manager.handlers.compensators


def test_loading_again_changes_nothing(install: Install, manage: Manage) -> None:
    install("acme", SOURCE)
    manager = manage()
    manager.load()
    before = manager.plugins()
    manager.load()
    assert manager.plugins() == before


def test_the_deny_list_wins(install: Install, manage: Manage) -> None:
    install("acme", SOURCE)
    manager = manage(AGENT_SAGA_DISABLE_PLUGINS="other, acme", AGENT_SAGA_LOAD_PLUGINS="acme")
    assert manager.plugins() == ()
    assert "acme" not in sys.modules


def test_the_allow_list_loads_nothing_else(install: Install, manage: Manage) -> None:
    install("acme", SOURCE)
    install("other", "")
    assert [p.name for p in manage(AGENT_SAGA_LOAD_PLUGINS="other").plugins()] == ["other"]
    assert manage(AGENT_SAGA_LOAD_PLUGINS="").plugins() == ()


def test_an_allow_list_that_names_what_is_not_installed_stops_the_start(manage: Manage) -> None:
    with pytest.raises(PluginError, match="not installed: acmee"):
        manage(AGENT_SAGA_LOAD_PLUGINS="acmee").load()


def test_a_plugin_that_cannot_be_imported_stops_the_start_and_names_the_way_out(
    install: Install, manage: Manage
) -> None:
    install("acme", "import no_such_module_anywhere")
    manager = manage(AGENT_SAGA_LOAD_PLUGINS="acme")
    with pytest.raises(PluginError) as caught:
        manager.load()
    assert "AGENT_SAGA_DISABLE_PLUGINS=acme" in str(caught.value)
    assert "acme 1.0" in str(caught.value)


def test_a_failed_load_fails_again(install: Install, manage: Manage) -> None:
    install("acme", "raise ValueError('broken')")
    manager = manage({"builtin": plugin()}, AGENT_SAGA_LOAD_PLUGINS="acme")
    for _ in range(2):
        with pytest.raises(PluginError, match="broken"):
            manager.plugins()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, RecursionError])
def test_a_load_that_is_interrupted_is_made_anew(manage: Manage, interrupt: Any) -> None:
    """Ctrl-C in the first boundary at a prompt: the next one is as if there had been none."""
    interrupts = [interrupt]

    class Interrupted(dict[str, Any]):
        def items(self) -> Any:
            for name, found in super().items():
                if name == "second" and interrupts:
                    raise interrupts.pop()
                yield name, found

    def undo() -> None: ...

    manager = manage(AGENT_SAGA_LOAD_PLUGINS="")
    manager._builtins = Interrupted(
        first=plugin(saga_register_compensators=lambda registry: registry.add("acme.undo", undo)),
        second=plugin(saga_on_event=lambda event: None),
    )
    with pytest.raises(interrupt):
        manager.load()
    assert [p.name for p in manager.plugins()] == ["first", "second"]
    assert "acme.undo" in manager.handlers.compensators


def test_two_distributions_with_one_plugin_name_are_both_named(
    install: Install, manage: Manage
) -> None:
    install("acme-one", "", entry="acme")
    install("acme-two", "", entry="acme")
    with pytest.raises(DuplicateName, match=r"acme-one.*acme-two|acme-two.*acme-one"):
        manage().load()


def test_an_installed_plugin_cannot_take_the_name_of_a_builtin(
    install: Install, manage: Manage
) -> None:
    install("acme", "", entry="core")
    with pytest.raises(DuplicateName):
        manage({"core": plugin()}, AGENT_SAGA_LOAD_PLUGINS="core").load()


def test_a_plugin_that_asks_for_plugins_while_it_loads_does_not_recurse(manage: Manage) -> None:
    seen: list[Any] = []
    manager = manage(AGENT_SAGA_LOAD_PLUGINS="")
    manager._builtins["curious"] = plugin(
        saga_register_compensators=lambda registry: seen.append(manager.plugins())
    )
    manager.load()
    assert seen == [()]


@pytest.fixture
def empty(manage: Manage) -> Any:
    return manage(AGENT_SAGA_LOAD_PLUGINS="")


def test_a_misspelt_hook_stops_the_start(empty: Any) -> None:
    with pytest.raises(PluginError, match=r"Did you mean saga_on_event\?"):
        empty.register(plugin(saga_on_evnt=lambda event: None), "acme")
    assert empty.plugins() == ()


def test_a_misspelt_specname_stops_the_start(empty: Any) -> None:
    marked = SimpleNamespace(saga_mine=hookimpl(lambda event: None, specname="saga_on_evnt"))
    with pytest.raises(PluginError):
        empty.register(marked, "acme")


def test_a_hook_without_its_marker_stops_the_start(empty: Any) -> None:
    def saga_on_event(event: Any) -> None: ...

    with pytest.raises(PluginError, match="without its marker"):
        empty.register(SimpleNamespace(saga_on_event=saga_on_event), "acme")


def test_names_of_an_integration_are_no_misspelt_hooks(empty: Any) -> None:
    def saga_agent() -> None: ...

    empty.register(SimpleNamespace(saga_agent=saga_agent), "acme")


def test_an_unknown_argument_stops_the_start(empty: Any) -> None:
    with pytest.raises(PluginError, match="misuses a hook"):
        empty.register(plugin(saga_on_event=lambda evnt: None), "acme")
    assert not empty.implemented("saga_on_event")


def test_a_wrapper_is_refused(empty: Any) -> None:
    @hookimpl(wrapper=True)
    def saga_guarantees() -> Any:
        return (yield)

    with pytest.raises(PluginError, match="wrappers are not allowed"):
        empty.register(SimpleNamespace(saga_guarantees=saga_guarantees), "acme")
    assert not empty.implemented("saga_guarantees")


def test_a_coroutine_function_is_refused(empty: Any) -> None:
    async def saga_health() -> None: ...

    with pytest.raises(PluginError, match="never runs"):
        empty.register(plugin(saga_health=saga_health), "acme")


def test_the_same_plugin_name_twice_is_refused(empty: Any) -> None:
    empty.register(plugin(), "acme")
    with pytest.raises(DuplicateName):
        empty.register(plugin(), "acme")


def test_an_error_while_registering_stops_the_start(empty: Any) -> None:
    def broken(registry: Any) -> None:
        raise ValueError("no network")

    with pytest.raises(PluginError, match=r"'acme' failed in .*_probers: ValueError: no network"):
        empty.register(plugin(saga_register_probers=broken), "acme")


def test_two_plugins_with_one_handler_name_are_both_named(empty: Any) -> None:
    def one() -> None: ...
    def two() -> None: ...

    empty.register(plugin(saga_register_compensators=lambda registry: registry.add("r", one)), "a")
    with pytest.raises(DuplicateName, match=r"locals>\.one and .*locals>\.two"):
        empty.register(
            plugin(saga_register_compensators=lambda registry: registry.add("r", two)), "b"
        )


def test_a_hook_that_nobody_has_is_known(empty: Any) -> None:
    assert not any(empty.implemented(hook) for hook in specs.HOOKS)
    empty.register(plugin(saga_on_event=lambda: None), "acme")
    assert empty.implemented("saga_on_event")


# --- each hook ------------------------------------------------------------------------------------


def refund() -> None: ...


@pytest.mark.parametrize("kind", ["compensators", "probers", "reconcilers"])
def test_hook_saga_register_handlers(empty: Any, kind: str) -> None:
    hook = {f"saga_register_{kind}": lambda registry: registry.add("acme.refund", refund)}
    empty.register(plugin(**hook), "acme")
    assert getattr(empty.handlers, kind).get("acme.refund").fn is refund


def test_hook_saga_register_backends(empty: Any) -> None:
    def open_it(address: str) -> str:
        return address

    def add(registry: Any) -> None:
        registry.add_wal("acme", open_it)
        registry.add_state("acme", open_it)

    empty.register(plugin(saga_register_backends=add), "acme")
    assert empty.backends.wal["acme"] is open_it
    assert empty.backends.state["acme"] is open_it
    with pytest.raises(AgentSagaError):
        empty.backends.add_wal("Acme:", open_it)
    with pytest.raises(DuplicateName):
        empty.backends.add_wal("acme", print)


def test_hook_saga_register_integrations(empty: Any) -> None:
    def add(registry: Any) -> None:
        registry.add("acme", package="agent_saga_acme", supports=">=1,<3")

    empty.register(plugin(saga_register_integrations=add), "acme")
    found = empty.integrations.find("acme")
    assert (found.package, found.supports) == ("agent_saga_acme", ">=1,<3")
    add(empty.integrations)
    with pytest.raises(DuplicateName, match=r"agent_saga_acme.* and by other"):
        empty.integrations.add("acme", package="other")


def test_hook_saga_register_commands(empty: Any) -> None:
    def add(registry: Any) -> None:
        registry.add("acme", "acme.cli:run", summary="Run acme.")

    empty.register(plugin(saga_register_commands=add), "acme")
    found = empty.commands.find("acme")
    assert (found.module, found.attribute, found.summary) == ("acme.cli", "run", "Run acme.")
    for address in ("acme.cli", "acme.cli:", ":run", "acme.cli:a b"):
        with pytest.raises(AgentSagaError):
            empty.commands.add("other", address, summary="")


def test_hook_saga_register_notifiers(empty: Any) -> None:
    def tell(case: Any) -> None: ...

    async def later(case: Any) -> None: ...

    empty.register(plugin(saga_register_notifiers=lambda registry: registry.add("m", tell)), "acme")
    assert dict(empty.notifiers.as_mapping()) == {"m": tell}
    with pytest.raises(DuplicateName):
        empty.notifiers.add("m", print)
    for notifier in (later, None, "mail"):
        with pytest.raises(AgentSagaError):
            empty.notifiers.add("other", notifier)


def test_hook_saga_gate_rules(empty: Any) -> None:
    empty.register(plugin(saga_gate_rules=lambda settings: [f"a {settings}"]), "a")
    empty.register(plugin(saga_gate_rules=lambda: ("b",)), "b")
    empty.register(plugin(saga_gate_rules=lambda: None), "c")
    assert sorted(empty.gate_rules("s")) == ["a s", "b"]


@pytest.mark.parametrize("answer", ["allow", 7, {"rule": 1}, b"x"])
def test_rules_that_are_no_list_stop_the_start(empty: Any, answer: Any) -> None:
    empty.register(plugin(saga_gate_rules=lambda: answer), "acme")
    with pytest.raises(PluginError, match="not with a list"):
        empty.gate_rules(None)


def test_a_policy_that_cannot_be_read_does_not_count_as_none(empty: Any) -> None:
    empty.register(plugin(saga_gate_rules=lambda: ["deny"]), "good")
    empty.register(plugin(saga_gate_rules=lambda: 1 / 0), "acme")
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        empty.gate_rules(None)


def test_hook_saga_on_event(empty: Any) -> None:
    seen: list[str] = []
    empty.register(plugin(saga_on_event=lambda event: seen.append(event.upper())), "one")
    observers = empty.observers()
    assert list(observers) == ["one"]
    observers["one"]("event")
    assert seen == ["EVENT"]


def test_hook_saga_guarantees(empty: Any) -> None:
    entry = {"id": "ACME-1", "sentence": "Acme keeps its word."}
    empty.register(plugin(saga_guarantees=lambda: [entry]), "acme")
    assert empty.guarantees() == [entry]
    empty.register(plugin(saga_guarantees=lambda: [{"id": "X"}]), "vague")
    with pytest.raises(PluginError, match="'sentence'"):
        empty.guarantees()


def test_hook_saga_health(empty: Any, caplog: pytest.LogCaptureFixture) -> None:
    empty.register(plugin(saga_health=lambda: None), "silent")
    empty.register(plugin(saga_health=lambda: Health(ready=True, detail="fine")), "well")
    empty.register(plugin(saga_health=lambda: 1 / 0), "broken")
    empty.register(plugin(saga_health=lambda: "ok"), "vague")
    signals = {signal.plugin: signal for signal in empty.health()}
    assert set(signals) == {"well", "broken", "vague"}
    assert signals["well"].ready is True
    assert signals["broken"].ready is None
    assert "ZeroDivisionError" in signals["broken"].detail
    assert signals["vague"].ready is None
    assert "'broken' failed in saga_health" in caplog.text


def test_hook_saga_register_approval_notifiers(empty: Any) -> None:
    class Pager:
        def notify(self, notice: object) -> None: ...

    one = Pager()

    def add(registry: Any) -> None:
        registry.add("pager", Pager)
        registry.add("one", one)

    empty.register(plugin(saga_register_approval_notifiers=add), "acme")
    assert isinstance(empty.tellers.made("pager"), Pager)
    assert empty.tellers.made("one") is one
    for wrong in (5, object()):
        with pytest.raises(AgentSagaError):
            empty.tellers.add("wrong", wrong)
    with pytest.raises(AgentSagaError, match="pager"):
        empty.tellers.made("pagre")
    empty.tellers.add("nothing", dict)
    with pytest.raises(AgentSagaError, match="makes no notifier"):
        empty.tellers.made("nothing")


def test_every_hook_is_tested_here() -> None:
    handlers = {f"saga_register_{kind}" for kind in ("compensators", "probers", "reconcilers")}
    tested = {name.removeprefix("test_hook_") for name in globals() if name.startswith("test_hook")}
    assert set(specs.HOOKS) - handlers == tested - {"saga_register_handlers"}


def test_every_hook_has_a_manual() -> None:
    for hook in specs.HOOKS:
        assert (getattr(specs, hook).__doc__ or "").strip()


def test_tracing_shows_calls_and_never_a_value(
    manage: Manage, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manage(AGENT_SAGA_LOAD_PLUGINS="", AGENT_SAGA_TRACE_PLUGINS="1")
    manager.register(plugin(saga_gate_rules=lambda settings: []), "acme")
    with caplog.at_level(logging.WARNING):
        manager.gate_rules("secret-value")
    assert "acme: saga_gate_rules(settings)" in caplog.text
    assert "secret-value" not in caplog.text


def test_importing_the_decorators_loads_no_plugin_machinery() -> None:
    code = (
        "import sys; import agent_saga.plugins.registration; "
        "sys.exit('pluggy' in sys.modules or 'click' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
