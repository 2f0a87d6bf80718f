"""The project's name for pluggy, and the two markers made from it.

A plugin marks its implementations with `hookimpl`, which `agent_saga` exports:

    from agent_saga import hookimpl

    @hookimpl
    def saga_register_compensators(registry): ...
"""

from __future__ import annotations

from typing import Final

import pluggy

__all__ = ["GROUP", "hookimpl", "hookspec"]

GROUP: Final = "agent_saga"
"""The entry-point group, and pluggy's name for the project."""

hookimpl = pluggy.HookimplMarker(GROUP)
hookspec = pluggy.HookspecMarker(GROUP)
