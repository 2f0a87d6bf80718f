"""Loading the user's modules for their handlers, without running the user's program.

Rules of this part:

- `--import module` is meant for modules that register handlers. A script without a main guard would
  act on the world again, so while modules are loaded no boundary opens and no wrapped tool runs
  (`refuse_while_importing`). The refusal holds for every thread of the process.
- The working directory comes first on the path, as it does for `python -m`.
- A module that cannot be loaded is a `PluginError` that names it. Fails closed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING

from agent_saga.errors import AgentSagaError, ConfigurationError, PluginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["import_modules", "importing", "refuse_while_importing"]

_lock = threading.Lock()
_loading: list[str] = []


@contextlib.contextmanager
def importing(module: str) -> Iterator[None]:
    """Refuse, for the length of the block, to open boundaries and to call wrapped tools.

    Args:
        module: the name of the module that is being loaded, for the message.
    """
    with _lock:
        _loading.append(module)
    try:
        yield
    finally:
        with _lock:
            _loading.remove(module)


def refuse_while_importing(what: str) -> None:
    """Raise if a module is being loaded for its handlers only.

    Args:
        what: what was about to happen, for the message: "opening a boundary", a tool's name.

    Raises:
        ConfigurationError: a module is being loaded; nothing happened.
    """
    if not _loading:
        return
    module = _loading[-1]
    raise ConfigurationError(
        f"{what} was refused: {module!r} is being loaded for its handlers only.",
        fix=f'Put what {module!r} runs under `if __name__ == "__main__":`.',
    )


def import_modules(names: Iterable[str]) -> None:
    """Load modules for the handlers that they register, the working directory first on the path.

    Args:
        names: full module names.

    Raises:
        PluginError: a module cannot be loaded.
        ConfigurationError: a module opened a boundary or called a wrapped tool while loading, or a
            text stands where a list of names belongs.
    """
    if isinstance(names, str):
        raise ConfigurationError(
            f"Modules to import are a list of names, not the text {names!r}.",
            fix=f"Give [{names!r}].",
        )
    here = os.getcwd()  # noqa: PTH109 - pathlib is slow to load
    for name in names:
        _put_first(here)  # also after a module that chose another one
        with importing(name):
            _load(name)


def _put_first(directory: str) -> None:
    if not sys.path or sys.path[0] != directory:
        sys.path.insert(0, directory)


def _load(name: str) -> None:
    try:
        importlib.import_module(name)
    except AgentSagaError:
        raise
    except SystemExit as error:
        raise PluginError(
            f"The module {name!r} ends the program while it is loaded.",
            fix=f'Put what {name!r} runs under `if __name__ == "__main__":`.',
        ) from error
    except Exception as error:
        raise PluginError(
            f"The module {name!r} cannot be loaded: {type(error).__name__}: {error}",
            fix="Give the module's full name (package.module), as in `import package.module`.",
        ) from error
