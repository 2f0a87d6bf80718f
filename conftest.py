"""Settings of all test runs of this workspace.

Random tests have no deadline: no test of this project asserts a time.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("usual", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", settings.get_profile("usual"), max_examples=2000)
settings.load_profile("usual")
