"""What makes a plugin unfit, found when it is registered and never later.

Rules of this part:

- A wrapper could swallow an answer of another plugin; a coroutine function would run nothing: both
  are refused.
- A name with the hooks' prefix and the marker that is no hook is a misspelling, and so is a
  function with a hook's exact name that lacks the marker.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import PluginError
from agent_saga.plugins.markers import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pluggy

PREFIX: Final = "saga_"

__all__ = ["check_implementations", "check_spelling"]


def check_implementations(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    """Refuse wrappers and coroutine functions among a plugin's implementations.

    Raises:
        PluginError: one of its implementations cannot be used.
    """
    for caller in manager.get_hookcallers(plugin) or ():
        for implementation in caller.get_hookimpls():
            if implementation.plugin is plugin:
                _check_one(name, caller.name, implementation)


def _check_one(name: str, hook: str, implementation: pluggy.HookImpl) -> None:
    if implementation.wrapper or implementation.hookwrapper:
        raise PluginError(
            f"The plugin {name!r} wraps {hook}; wrappers are not allowed.",
            fix="Implement the hook as a plain function.",
        )
    if inspect.iscoroutinefunction(implementation.function):
        raise PluginError(
            f"The plugin {name!r} implements {hook} as a coroutine function, which never runs.",
            fix="Implement the hook as a plain function.",
        )


def check_spelling(plugin: Any, name: str, hooks: Iterable[str]) -> None:
    """Refuse an implementation whose name or marker is missing its hook.

    Raises:
        PluginError: a marked function is no hook, or a hook's function is not marked.
    """
    known = set(hooks)
    for attribute in sorted(dir(plugin)):
        if not attribute.startswith(PREFIX):
            continue
        function = getattr(plugin, attribute, None)
        if not inspect.isroutine(function):
            continue
        marked = getattr(function, f"{GROUP}_impl", None)
        if marked and not marked.get("specname") and attribute not in known:
            raise _misspelt(name, attribute, known)
        if attribute in known and not marked and not getattr(function, f"{GROUP}_spec", None):
            raise PluginError(
                f"The plugin {name!r} defines {attribute} without its marker, so it never runs.",
                fix="Put @hookimpl (from agent_saga) above it.",
            )


def _misspelt(name: str, attribute: str, known: set[str]) -> PluginError:
    from difflib import get_close_matches  # noqa: PLC0415 - only for this message

    near = get_close_matches(attribute, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return PluginError(
        f"The plugin {name!r} implements {attribute}, which is no hook.{hint}",
        fix="Correct the name, or install the version of agent-saga-core that has this hook.",
    )
