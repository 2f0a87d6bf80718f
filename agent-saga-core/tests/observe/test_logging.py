"""Log records with ids, opt-in, and never the root logger."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga.errors import ConfigurationError
from agent_saga.observe.correlation import SAGA_ID, STEP_ID, CorrelationFilter, correlated
from agent_saga.observe.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("agent_saga", "app_of_mine")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(list(lg.handlers), lg.level, lg.propagate) for lg in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def test_every_record_carries_the_ids(out: io.StringIO) -> None:
    configure_logging(format="json", stream=out)
    with correlated("saga-1", "step-1"):
        logging.getLogger("agent_saga.engine").warning("a %s", "message")
    logging.getLogger("agent_saga").info("outside")
    inside, outside = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (inside["saga_id"], inside["step_id"]) == ("saga-1", "step-1")
    assert (inside["level"], inside["logger"]) == ("WARNING", "agent_saga.engine")
    assert inside["message"] == "a message"
    assert inside["time"].endswith("+00:00")
    assert (outside["saga_id"], outside["step_id"]) == ("", "")


def test_text_is_one_line_whatever_the_message_holds(out: io.StringIO) -> None:
    configure_logging(stream=out)
    with correlated("saga-1"):
        logging.getLogger("agent_saga").warning("a\n2026 ERROR forged \ud800 é")
    assert len(out.getvalue().splitlines()) == 1
    assert "WARNING agent_saga [saga=saga-1] a\\n2026 ERROR forged \\ud800 é" in out.getvalue()


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_traceback_and_a_stack_are_written(out: io.StringIO, format_: Any) -> None:
    configure_logging(format=format_, stream=out)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("agent_saga").exception("failed", stack_info=True)
    assert "ValueError: broken" in out.getvalue()
    assert "Stack (most recent call last)" in out.getvalue()
    assert "[saga=" not in out.getvalue()


def test_the_root_logger_is_left_alone(out: io.StringIO) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    configure_logging(stream=out, level="DEBUG")
    assert (list(root.handlers), root.level) == before
    for name in ("", "root"):
        with pytest.raises(ConfigurationError, match="root logger"):
            configure_logging(loggers=[name])


def test_calling_it_again_replaces(out: io.StringIO) -> None:
    configure_logging(stream=io.StringIO())
    handler = configure_logging(stream=out)
    logging.getLogger("agent_saga").info("once")
    assert out.getvalue().count("once") == 1
    ours = [h for h in logging.getLogger("agent_saga").handlers if type(h) is type(handler)]
    assert ours == [handler]


def test_loggers_of_the_program_can_have_the_ids_too(out: io.StringIO) -> None:
    configure_logging(format="json", stream=out, loggers=NAMES)
    with correlated("saga-1", "step-1"):
        logging.getLogger("app_of_mine.charge").info("charging")
    assert json.loads(out.getvalue())["step_id"] == "step-1"


@pytest.mark.parametrize("arguments", [{"format": "xml"}, {"level": "LOUD"}, {"level": None}])
def test_what_cannot_be_set_is_refused(arguments: Any) -> None:
    with pytest.raises(ConfigurationError):
        configure_logging(**arguments)


def test_the_filter_keeps_ids_that_a_record_has() -> None:
    record = logging.makeLogRecord({"saga_id": "given"})
    with correlated("saga-1", "step-1"):
        assert CorrelationFilter().filter(record)
    assert (record.saga_id, record.step_id) == ("given", "step-1")  # type: ignore[attr-defined]


def test_ids_nest_and_are_inherited_by_tasks() -> None:
    async def ids() -> tuple[str, str]:
        return SAGA_ID.get(), STEP_ID.get()

    async def main() -> None:
        with correlated("outer", "step"):
            with correlated("inner"):
                assert await asyncio.create_task(ids()) == ("inner", "")
            assert await ids() == ("outer", "step")
        assert await ids() == ("", "")

    asyncio.run(main())


@pytest.mark.parametrize(("level", "shown"), [("warning", "unprotected\n"), ("info", "")])
def test_without_configuration_only_warnings_are_shown(level: str, shown: str) -> None:
    code = (
        "import agent_saga.observe.logging, logging;"
        f"logging.getLogger('agent_saga.engine').{level}('unprotected')"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stderr == shown
