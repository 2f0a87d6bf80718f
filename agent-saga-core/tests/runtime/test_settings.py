"""The one table of defaults, and the variables that change it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agent_saga.engine.pool import DEFAULT_THREADS
from agent_saga.engine.timing import Timing
from agent_saga.errors import ConfigurationError
from agent_saga.runtime.composition import timing, tool_pool
from agent_saga.runtime.settings import Settings, defaults_table


def test_the_defaults_are_those_of_the_rules() -> None:
    assert dataclasses.asdict(Settings()) == {
        "wal": "./agent-saga.wal",
        "settle": 30.0,
        "inverse_timeout": 60.0,
        "inverse_attempts": 3,
        "inverse_delay": 0.2,
        "settle_after": 60.0,
        "settle_unknown": "wait",
        "cancel_grace": 5.0,
        "step_timeout": None,
        "approval_timeout": 300.0,
        "on_unsettled": "raise",
        "outside": "warn",
        "after_stuck": "halt",
        "on_crash": "undo",
        "resume_grace": 900.0,
        "tool_threads": 32,
        "undo_window": 2_592_000.0,
        "kill_switch_grace": 30.0,
        "stall_after": 30.0,
    }


def test_the_engine_has_no_other_defaults() -> None:
    assert timing(Settings()) == Timing()
    assert tool_pool(Settings().tool_threads).threads == DEFAULT_THREADS


def test_variables_change_them() -> None:
    settings = Settings.from_environ(
        {
            "AGENT_SAGA_WAL": "memory:",
            "AGENT_SAGA_SETTLE": "0",
            "AGENT_SAGA_INVERSE_ATTEMPTS": "5",
            "AGENT_SAGA_STEP_TIMEOUT": "2.5",
            "AGENT_SAGA_OUTSIDE": "refuse",
            "AGENT_SAGA_SETTLE_UNKNOWN": "release",
            "AGENT_SAGA_STALL_AFTER": "",
            "UNRELATED": "x",
        }
    )
    assert settings == Settings(
        wal="memory:",
        settle=0,
        inverse_attempts=5,
        step_timeout=2.5,
        outside="refuse",
        settle_unknown="release",
    )


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SAGA_STEP_TIMEOUT", "none")
    monkeypatch.setenv("AGENT_SAGA_AFTER_STUCK", "continue")
    assert Settings.from_environ() == Settings(step_timeout=None, after_stuck="continue")


BAD = [
    ("settle", "soon"),
    ("settle", "-1"),
    ("settle", "nan"),
    ("settle", "inf"),
    ("settle", "1e300"),
    ("inverse_timeout", "0"),
    ("inverse_attempts", "0"),
    ("inverse_attempts", "2.5"),
    ("inverse_attempts", "100000"),
    ("step_timeout", "never"),
    ("on_unsettled", "ignore"),
    ("outside", "Warn"),
    ("settle_unknown", "maybe"),
    ("wal", " "),
    ("wal", "a\0b"),
]


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_variable_names_itself_and_what_it_takes(name: str, text: str) -> None:
    variable = f"AGENT_SAGA_{name.upper()}"
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_environ({variable: text})
    assert variable in str(caught.value)
    assert "To do: Give it " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [*BAD, ("settle", True), ("settle", None), ("tool_threads", True), ("settle_unknown", True),
     ("tool_threads", 2.0), ("wal", None), ("outside", None)],
)  # fmt: skip
def test_a_bad_value_in_code_is_refused_too(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"The setting {name} cannot be"):
        Settings(**{name: value})


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().settle = 1.0  # type: ignore[misc]


def test_a_changed_copy_is_checked() -> None:
    assert Settings().replace(settle=1).settle == 1.0
    with pytest.raises(ConfigurationError, match="setting settle cannot"):
        Settings().replace(settle=-1)
    with pytest.raises(ConfigurationError, match="'setle' is no setting"):
        Settings().replace(setle=1)


def test_the_table_tells_every_setting() -> None:
    rows = {row.name: row for row in defaults_table(Settings(settle=5))}
    assert set(rows) == {field.name for field in dataclasses.fields(Settings)}
    settle = rows["settle"]
    assert (settle.variable, settle.default, settle.value, settle.changed) == (
        "AGENT_SAGA_SETTLE",
        "30 s",
        "5 s",
        True,
    )
    assert rows["step_timeout"].default == "none"
    assert not rows["wal"].changed
    assert all(row.meaning for row in rows.values())
