"""A folder of text files."""

from __future__ import annotations

from pathlib import Path

from .faults import Faults


class Folder:
    """Writes, reads and removes files.

    Args:
        path: the folder; it is created.
        faults: the connections that get lost.
    """

    def __init__(self, path: Path, faults: Faults) -> None:
        self._path, self._faults = path, faults
        path.mkdir()

    def read(self, name: str) -> str | None:
        """Return what a file says, or None if there is none."""
        path = self._path / name
        return path.read_text("utf-8") if path.exists() else None

    def write(self, name: str, text: str) -> None:
        """Write a whole file at once: a reader sees the old text or the new one."""
        with self._faults.around("write_file"):
            self._replace(name, text)

    def restore(self, name: str, text: str | None) -> None:
        """Make a file what it was; None means that there was none."""
        with self._faults.around("restore"):
            if text is None:
                (self._path / name).unlink(missing_ok=True)
            else:
                self._replace(name, text)

    def _replace(self, name: str, text: str) -> None:
        draft = self._path / f".{name}.draft"
        draft.write_text(text, "utf-8")
        draft.replace(self._path / name)

    def state(self) -> dict[str, str]:
        """Return what every file says."""
        files = sorted(path for path in self._path.iterdir() if path.is_file())
        return {f"files: {path.name}": path.read_text("utf-8").strip() for path in files}
