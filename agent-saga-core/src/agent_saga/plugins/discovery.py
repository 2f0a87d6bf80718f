"""Which installed plugins are loaded: entry points, an allow-list and a deny-list.

Rules of this part:

- `AGENT_SAGA_LOAD_PLUGINS` is an allow-list of entry-point names, separated by commas; set and
  empty, it loads none. A name in it that is not installed stops the start.
- `AGENT_SAGA_DISABLE_PLUGINS` names plugins that are not loaded; it wins over the allow-list.
- Two distributions that announce the same name stop the start.
- A plugin that cannot be imported stops the start, naming the variable that disables it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import AgentSagaError, DuplicateName, PluginError
from agent_saga.plugins.markers import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib import metadata

__all__ = ["ALLOW", "DENY", "Installed", "find_plugins"]

ALLOW: Final = "AGENT_SAGA_LOAD_PLUGINS"
DENY: Final = "AGENT_SAGA_DISABLE_PLUGINS"


class Installed:
    """An installed plugin, not yet imported.

    Attributes:
        name: its entry point's name.
        distribution: the distribution that announces it.
        version: that distribution's version.
    """

    __slots__ = ("_entry", "distribution", "name", "version")

    def __init__(self, entry: metadata.EntryPoint) -> None:
        self._entry = entry
        self.name = entry.name
        self.distribution = entry.dist.name if entry.dist else ""
        self.version = entry.dist.version if entry.dist else ""

    def load(self) -> Any:
        """Import the plugin.

        Raises:
            PluginError: it cannot be imported.
        """
        try:
            return self._entry.load()
        except AgentSagaError:
            raise
        except Exception as error:
            raise PluginError(
                f"The plugin {self} cannot be loaded: {type(error).__name__}: {error}",
                fix=f"Repair or uninstall it, or set {DENY}={self.name}.",
            ) from error

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}".strip()
        return f"{self.name!r} ({origin})" if origin else repr(self.name)


def find_plugins(environ: Mapping[str, str]) -> list[Installed]:
    """Return the installed plugins that may be loaded, by name.

    Raises:
        DuplicateName: two distributions announce the same name.
        PluginError: the allow-list names a plugin that is not installed.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to load, asked once

    installed = _by_name(entry_points(group=GROUP))
    denied = names_in(environ.get(DENY, ""))
    allowed = environ.get(ALLOW)
    wanted = set(installed) if allowed is None else names_in(allowed)
    missing = sorted(wanted - set(installed) - denied)
    if missing:
        raise PluginError(
            f"{ALLOW} names a plugin that is not installed: {', '.join(missing)}.",
            fix=f"Install it, or take it out of {ALLOW}.",
        )
    return [installed[name] for name in sorted(wanted - denied)]


def names_in(value: str) -> set[str]:
    """Return the names of a list that is separated by commas."""
    return {name.strip() for name in value.split(",") if name.strip()}


def _by_name(entries: Iterable[metadata.EntryPoint]) -> dict[str, Installed]:
    found: dict[str, Installed] = {}
    for entry in entries:
        plugin = Installed(entry)
        other = found.setdefault(plugin.name, plugin)
        if other is not plugin:
            raise DuplicateName(
                f"Two distributions announce the plugin {plugin.name!r}: {other.distribution} "
                f"and {plugin.distribution}.",
                fix="Uninstall one of them.",
            )
    return found
