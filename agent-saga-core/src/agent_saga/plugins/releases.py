"""Which distribution brought a module: looked up among everything that is installed.

Rules of this part:

- Loading and asking it takes long, so it is loaded by the first question and remembers its answers.
- An editable installation lists no files of its package; its folder is the only witness.
"""

from __future__ import annotations

import functools
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["release_of"]


@functools.lru_cache(maxsize=1024)
def release_of(module: str) -> tuple[str, str]:
    """Return the name and version of a module's distribution; empty when it belongs to none.

    Args:
        module: the module's full name.
    """
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "__main__":
        return "", ""
    name = _distributions().get(top) or _editable_distribution(top)
    return (name, metadata.version(name)) if name else ("", "")


@functools.lru_cache(maxsize=1)
def _distributions() -> dict[str, str]:
    return {top: names[0] for top, names in metadata.packages_distributions().items()}


def _editable_distribution(top: str) -> str:
    """Find an editable distribution whose source folder holds the module.

    An editable installation lists no files of the package, so its folder is the only witness.
    """
    file = getattr(sys.modules.get(top), "__file__", None)
    if not file:
        return ""
    path = Path(file).resolve()
    for distribution in metadata.distributions():
        folder = _editable_folder(distribution.read_text("direct_url.json"))
        if folder is not None and path.is_relative_to(folder):
            return str(distribution.metadata["Name"])
    return ""


def _editable_folder(direct_url: str | None) -> Path | None:
    from urllib.parse import unquote, urlparse  # noqa: PLC0415 - slow to load, seldom needed

    if not direct_url:
        return None
    try:
        told: Any = json.loads(direct_url)
        editable = told["dir_info"]["editable"]
        return Path(unquote(urlparse(told["url"]).path)).resolve() if editable else None
    except (KeyError, TypeError, ValueError):
        return None
