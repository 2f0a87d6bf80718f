"""The plugin manager: loads plugins once, checks them, and asks them.

Rules of this part:

- Nothing is loaded at import; the first question loads. A load that failed is not tried again:
  every later question raises the same error. Fails closed.
- Implementations are called one by one, so that an error names its plugin. Registration and policy
  let it through as `PluginError`; health isolates it; observers are isolated by the event stream
  that they are handed to.
- `implemented(hook)` is known after loading, so that a hot path can skip a hook that nobody has.
- `AGENT_SAGA_TRACE_PLUGINS=1` writes every call with its plugin and argument names to the log of
  the program, never an argument's value.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pluggy

from agent_saga.errors import AgentSagaError, DuplicateName, PluginError
from agent_saga.plugins import specs
from agent_saga.plugins.backends import BackendRegistry
from agent_saga.plugins.checks import check_implementations, check_spelling
from agent_saga.plugins.commands import CommandRegistry
from agent_saga.plugins.discovery import Installed, find_plugins
from agent_saga.plugins.health import Health
from agent_saga.plugins.integrations import IntegrationRegistry
from agent_saga.plugins.markers import GROUP
from agent_saga.plugins.notifiers import NotifierRegistry
from agent_saga.plugins.registry import Handlers, process_handlers
from agent_saga.plugins.tellers import TellerRegistry

__all__ = ["TRACE", "LoadedPlugin", "PluginManager"]

TRACE: Final = "AGENT_SAGA_TRACE_PLUGINS"
_logger = logging.getLogger("agent_saga.plugins")


class LoadedPlugin:
    """A plugin that is in use.

    Attributes:
        name: its name, unique in this process.
        distribution: the distribution that brought it; empty for a built-in or inline plugin.
        version: that distribution's version.
    """

    __slots__ = ("distribution", "name", "version")

    def __init__(self, name: str, distribution: str = "", version: str = "") -> None:
        self.name = name
        self.distribution = distribution
        self.version = version

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}".strip()
        return f"{self.name} ({origin})" if origin else self.name


class PluginManager:
    """Loads the installed plugins at the first question and asks them.

    Safe to use from several threads.

    Args:
        builtins: the features of agent-saga itself, by name; they are plugins like any other.
        environ: where the switches are read.
        handlers: the registries that plugins fill; those of the process when not given.
    """

    def __init__(
        self,
        builtins: Mapping[str, object] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        handlers: Handlers | None = None,
    ) -> None:
        self.handlers = process_handlers() if handlers is None else handlers
        self._backends = BackendRegistry()
        self._integrations = IntegrationRegistry()
        self._commands = CommandRegistry()
        self._notifiers = NotifierRegistry()
        self._tellers = TellerRegistry()
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._builtins = dict(builtins or {})
        self._pluggy = pluggy.PluginManager(GROUP)
        self._pluggy.add_hookspecs(specs)
        self._plugins: dict[str, LoadedPlugin] = {}
        self._loaded = False
        self._loading = False
        self._failure: AgentSagaError | None = None
        self._lock = threading.RLock()

    def load(self) -> None:
        """Load built-in and installed plugins and let them register; once, at the first call.

        Raises:
            PluginError: a plugin cannot be imported or misuses a hook.
            DuplicateName: two plugins claim the same name.
        """
        if not self._loaded:
            with self._lock:
                self._load_once()

    def register(self, plugin: object, name: str) -> None:
        """Add a plugin of the program itself, beside the installed ones.

        Args:
            plugin: a module or an object with implementations.
            name: its name in messages.

        Raises:
            PluginError: it misuses a hook.
            DuplicateName: another plugin has this name.
        """
        self.load()
        with self._lock:
            self._take(plugin, LoadedPlugin(name))

    @property
    def backends(self) -> BackendRegistry:
        """The backends of logs and state stores."""
        self.load()
        return self._backends

    @property
    def integrations(self) -> IntegrationRegistry:
        """The integrations of frameworks and vendors."""
        self.load()
        return self._integrations

    @property
    def commands(self) -> CommandRegistry:
        """The commands of the command line."""
        self.load()
        return self._commands

    @property
    def notifiers(self) -> NotifierRegistry:
        """Who is told of sagas that need a human."""
        self.load()
        return self._notifiers

    @property
    def tellers(self) -> TellerRegistry:
        """The ways to tell people of a request for approval."""
        self.load()
        return self._tellers

    def plugins(self) -> tuple[LoadedPlugin, ...]:
        """Return the plugins in use, by name."""
        self.load()
        return tuple(self._plugins[name] for name in sorted(self._plugins))

    def implemented(self, hook: str) -> bool:
        """Say whether any plugin implements a hook."""
        self.load()
        return bool(self._caller(hook).get_hookimpls())

    def gate_rules(self, settings: object) -> list[object]:
        """Return the rules of all plugins; they all apply.

        Raises:
            PluginError: a plugin failed, or answered with something that is no list.
        """
        return self._collected("saga_gate_rules", settings=settings)

    def guarantees(self) -> list[Mapping[str, Any]]:
        """Return the guarantees of all plugins.

        Raises:
            PluginError: a plugin failed, or an entry has no `id` and `sentence`.
        """
        entries = self._collected("saga_guarantees")
        for entry in entries:
            if not isinstance(entry, Mapping) or not {"id", "sentence"} <= set(entry):
                raise PluginError(f"A guarantee needs an 'id' and a 'sentence': {entry!r}.")
        return entries

    def health(self) -> list[Health]:
        """Return what each plugin says of its health; one that fails is not ready."""
        self.load()
        signals = [self._health_of(found) for found in self._implementations("saga_health")]
        return [signal for signal in signals if signal is not None]

    def observers(self) -> dict[str, Callable[[Any], None]]:
        """Return the observers of events, by plugin; the event stream isolates each of them."""
        self.load()
        return {
            found.plugin_name: partial(self._observe, found)
            for found in self._implementations("saga_on_event")
        }

    def _load_once(self) -> None:
        if self._failure is not None:
            raise self._failure
        # A plugin that asks for plugins while it is being imported gets those loaded so far.
        if self._loaded or self._loading:
            return
        self._loading = True
        try:
            self._load_all()
            self._loaded = True
        except AgentSagaError as error:
            self._failure = error
            raise
        except BaseException:
            self._begin_anew()
            raise
        finally:
            self._loading = False

    def _begin_anew(self) -> None:
        """Forget a loading that was cut short (Ctrl-C, an alarm), so that the next one is whole.

        What its plugins have registered stays: registering the same again changes nothing.
        """
        self._plugins.clear()
        for name, _ in self._pluggy.list_name_plugin():
            self._drop(name)

    def _load_all(self) -> None:
        for name, plugin in self._builtins.items():
            self._take(plugin, LoadedPlugin(name))
        for installed in find_plugins(self._environ):
            self._take_installed(installed)

    def _take_installed(self, installed: Installed) -> None:
        if installed.name in self._plugins:
            raise DuplicateName(
                f"The plugin {installed} has the name of a plugin that is in use already.",
                fix=f"Uninstall {installed.distribution}, or disable it.",
            )
        plugin = installed.load()
        self._take(plugin, LoadedPlugin(installed.name, installed.distribution, installed.version))

    def _take(self, plugin: object, loaded: LoadedPlugin) -> None:
        check_spelling(plugin, loaded.name, specs.HOOKS)
        if loaded.name in self._plugins:
            raise DuplicateName(f"Two plugins are called {loaded.name!r}.")
        try:
            self._pluggy.register(plugin, loaded.name)
            self._pluggy.check_pending()
            check_implementations(self._pluggy, plugin, loaded.name)
            self._let_register(loaded.name)
        except pluggy.PluginValidationError as error:
            self._drop(loaded.name)
            raise PluginError(f"The plugin {loaded.name!r} misuses a hook: {error}") from error
        except BaseException:
            self._drop(loaded.name)
            raise
        self._plugins[loaded.name] = loaded

    def _drop(self, name: str) -> None:
        if self._pluggy.has_plugin(name):
            self._pluggy.unregister(name=name)

    def _let_register(self, name: str) -> None:
        registries: dict[str, object] = {
            "saga_register_compensators": self.handlers.compensators,
            "saga_register_probers": self.handlers.probers,
            "saga_register_reconcilers": self.handlers.reconcilers,
            "saga_register_backends": self._backends,
            "saga_register_integrations": self._integrations,
            "saga_register_commands": self._commands,
            "saga_register_notifiers": self._notifiers,
            "saga_register_approval_notifiers": self._tellers,
        }
        for hook, registry in registries.items():
            for found in self._implementations(hook):
                if found.plugin_name == name:
                    self._call(hook, found, {"registry": registry})

    def _caller(self, hook: str) -> pluggy.HookCaller:
        caller: pluggy.HookCaller = getattr(self._pluggy.hook, hook)
        return caller

    def _implementations(self, hook: str) -> Iterator[pluggy.HookImpl]:
        """Yield a hook's implementations in pluggy's order: the one that comes first, first."""
        yield from reversed(self._caller(hook).get_hookimpls())

    def _collected(self, hook: str, **arguments: object) -> list[Any]:
        self.load()
        answers: list[Any] = []
        for found in self._implementations(hook):
            answer = self._call(hook, found, arguments)
            if answer is None:
                continue
            if not isinstance(answer, Iterable) or isinstance(answer, (str, bytes, Mapping)):
                raise PluginError(
                    f"The plugin {found.plugin_name!r} answered {hook} with a "
                    f"{type(answer).__name__}, not with a list."
                )
            answers.extend(answer)
        return answers

    def _call(self, hook: str, found: pluggy.HookImpl, arguments: Mapping[str, object]) -> Any:
        try:
            return self._invoke(hook, found, arguments)
        except AgentSagaError:
            raise
        except Exception as error:
            raise PluginError(
                f"The plugin {found.plugin_name!r} failed in {hook}: "
                f"{type(error).__name__}: {error}",
                fix=f"Repair it, or set AGENT_SAGA_DISABLE_PLUGINS={found.plugin_name}.",
            ) from error

    def _invoke(self, hook: str, found: pluggy.HookImpl, arguments: Mapping[str, object]) -> Any:
        wanted = {name: arguments[name] for name in found.argnames}
        if self._environ.get(TRACE):
            _logger.warning("%s: %s(%s)", found.plugin_name, hook, ", ".join(sorted(wanted)))
        return found.function(**wanted)

    def _observe(self, found: pluggy.HookImpl, event: Any) -> None:
        self._invoke("saga_on_event", found, {"event": event})

    def _health_of(self, found: pluggy.HookImpl) -> Health | None:
        name = found.plugin_name
        try:
            signal = self._invoke("saga_health", found, {})
        except Exception as error:
            _logger.exception("The plugin %r failed in saga_health.", name)
            return Health(None, f"{type(error).__name__}: {error}", name)
        if signal is None:
            return None
        if not isinstance(signal, Health):
            return Health(None, f"answered with a {type(signal).__name__}", name)
        return Health(signal.ready, signal.detail, name)
