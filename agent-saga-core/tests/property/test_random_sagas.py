"""Random sagas on the real engine, judged by what happened in the world."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings
from property.judging import Judge
from property.programs import Program
from property.running import Run, run
from property.strategies import programs

pytestmark = [pytest.mark.property, pytest.mark.timeout(1800)]
EXAMPLES = settings.default.max_examples
MANY = settings(
    max_examples=max(300, EXAMPLES),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def judged(program: Program, *, is_async: bool) -> Run:
    """Run a program and judge it; show everything when it is not well."""
    this = run(program, is_async=is_async)
    try:
        Judge(this).judge()
    except BaseException:
        note(f"error={this.error!r}")
        note(f"{this.report.summary() if this.report else 'no report'}")
        for event in this.world.events:
            note(str(event))
        for record in this.records:
            note(f"{record.seq} {record.event} {record.step[:6]} {record.generation} {record.data}")
        raise
    return this


@MANY
@given(programs(is_async=True))
def test_a_random_asynchronous_saga_tells_the_truth(program):
    judged(program, is_async=True)


@MANY
@given(programs(is_async=False))
def test_a_random_synchronous_saga_tells_the_truth(program):
    judged(program, is_async=False)


@settings(max_examples=EXAMPLES)
@given(programs(is_async=True, good=True))
def test_a_saga_whose_calls_go_well_is_clean(program):
    assert judged(program, is_async=True).exit_clean


@settings(max_examples=EXAMPLES)
@given(programs(is_async=False, good=True))
def test_a_synchronous_saga_whose_calls_go_well_is_clean(program):
    assert judged(program, is_async=False).exit_clean
