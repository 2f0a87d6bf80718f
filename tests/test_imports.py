"""What a plain import loads: the standard library, pluggy, msgspec and our own code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ALLOWED = {"agent_saga", "msgspec", "pluggy"}
LISTING = "import sys, json, agent_saga; print(json.dumps([*sys.modules]))"
EMPTY = "import sys, json; print(json.dumps([*sys.modules]))"


def modules(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_importing_the_core_loads_its_own_code_and_two_libraries():
    # What an interpreter of this environment loads at its start is not our doing.
    strangers = modules(LISTING) - modules(EMPTY) - set(sys.stdlib_module_names) - ALLOWED
    assert not {name for name in strangers if not name.startswith("_")}


def test_importing_every_name_loads_nothing_that_is_slow_and_seldom_needed():
    every = (
        "import json, sys, agent_saga; [getattr(agent_saga, name) for name in agent_saga.__all__]"
    )
    needed = "import asyncio, json, pluggy, sqlite3, sys, msgspec.inspect"
    listing = "; print(json.dumps([*sys.modules]))"
    loaded = modules(every + listing) - modules(needed + listing)
    assert not loaded & {"http", "ipaddress", "pathlib", "socketserver", "tomllib", "urllib", "xml"}


def test_the_command_line_is_not_loaded():
    assert "click" not in modules(LISTING)


@pytest.mark.parametrize("flag", ["-O", "-OO", "-Werror"])
def test_the_core_imports_under_every_flag(flag):
    subprocess.run([sys.executable, flag, "-c", "import agent_saga"], check=True)


def test_every_promised_name_can_be_imported_alone():
    program = (
        "import subprocess, sys, agent_saga\n"
        "for name in agent_saga.__all__:\n"
        "    exec(f'from agent_saga import {name}')\n"
    )
    subprocess.run([sys.executable, "-Werror", "-c", program], check=True)
