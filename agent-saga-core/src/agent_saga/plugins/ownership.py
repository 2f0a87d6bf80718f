"""Who registered a thing: its module, and the distribution and version when they are known.

Rules of this part:

- The module is known at once; the distribution is looked up at the first question (`releases`) and
  remembered, because reading every installed distribution takes long. Nobody asks while a step
  runs: a handler's owner is asked when a tool is wrapped.
- What cannot be found is the empty string, never a guess: a module of the user's own program
  belongs to no distribution.
"""

from __future__ import annotations

__all__ = ["Owner", "owner_of"]


class Owner:
    """The module that registered something, with the distribution that brought it.

    Args:
        module: the module's full name.
        name: the name of the thing inside the module, where there is one.
        distribution: the distribution's name; None means: look it up when somebody asks.
        version: the distribution's version.
    """

    __slots__ = ("_distribution", "_version", "module", "name")

    def __init__(
        self, module: str, name: str = "", distribution: str | None = None, version: str = ""
    ) -> None:
        self.module = module
        self.name = name
        self._distribution = distribution
        self._version = version

    @property
    def distribution(self) -> str:
        """The name of the distribution, or an empty string."""
        return self._release()[0]

    @property
    def version(self) -> str:
        """The version of the distribution, or an empty string."""
        return self._release()[1]

    def _release(self) -> tuple[str, str]:
        if self._distribution is None:
            from agent_saga.plugins import releases  # noqa: PLC0415 - slow to load, rarely asked

            self._distribution, self._version = releases.release_of(self.module)
        return self._distribution, self._version

    def __str__(self) -> str:
        distribution, version = self._release()
        place = f"{self.module}.{self.name}" if self.name else self.module
        return f"{place} ({distribution} {version})" if distribution else place

    def __repr__(self) -> str:
        return f"Owner({self.module!r})"


def owner_of(thing: object) -> Owner:
    """Return the owner of a function, class or module.

    Args:
        thing: what was registered; an instance belongs to the module of its class.
    """
    module = getattr(thing, "__module__", None) or getattr(thing, "__name__", None)
    if not isinstance(module, str):
        module = type(thing).__module__
    return Owner(module, getattr(thing, "__qualname__", ""))
