"""Loading the user's modules for their handlers only."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from agent_saga.errors import ConfigurationError, PluginError
from agent_saga.plugins.importing import import_modules, importing, refuse_while_importing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_nothing_is_refused_outside() -> None:
    refuse_while_importing("opening a boundary")


def test_a_module_is_found_in_the_working_directory_first(here: Path) -> None:
    (here / "handlers_of_mine.py").write_text("loaded = True")
    import_modules(["handlers_of_mine"])
    assert sys.modules["handlers_of_mine"].loaded
    assert sys.path[0] == str(here)
    import_modules(["handlers_of_mine"])
    assert sys.path.count(str(here)) == 1


def test_a_script_that_acts_while_it_loads_is_refused(here: Path) -> None:
    (here / "script_of_mine.py").write_text(
        "from agent_saga.plugins.importing import refuse_while_importing\n"
        "refuse_while_importing('calling charge')\n"
    )
    with pytest.raises(ConfigurationError, match="calling charge was refused") as caught:
        import_modules(["script_of_mine"])
    assert "__main__" in str(caught.value)
    refuse_while_importing("afterwards")


def test_the_refusal_holds_in_every_thread() -> None:
    errors: list[BaseException] = []

    def act() -> None:
        try:
            refuse_while_importing("calling charge")
        except ConfigurationError as error:
            errors.append(error)

    with importing("outer"), importing("inner"):
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
    assert "'inner'" in str(errors[0])
    act()
    assert len(errors) == 1


@pytest.mark.parametrize("source", ["import no_such_module_anywhere", "1 / 0", "def broken(:"])
def test_a_module_that_cannot_be_loaded_is_named(here: Path, source: str) -> None:
    (here / "broken_of_mine.py").write_text(source)
    with pytest.raises(PluginError, match="'broken_of_mine' cannot be loaded"):
        import_modules(["broken_of_mine"])
    refuse_while_importing("afterwards")


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "", ".relative", "a..b"])
def test_a_name_that_is_no_module_is_named(here: Path, name: str) -> None:
    with pytest.raises(PluginError, match="full name"):
        import_modules([name])


@pytest.mark.parametrize("source", ["import sys; sys.exit(0)", "raise SystemExit"])
def test_a_module_that_ends_the_program_is_named(here: Path, source: str) -> None:
    (here / "ends_of_mine.py").write_text(source)
    with pytest.raises(PluginError, match="'ends_of_mine' ends the program"):
        import_modules(["ends_of_mine"])
    refuse_while_importing("afterwards")
