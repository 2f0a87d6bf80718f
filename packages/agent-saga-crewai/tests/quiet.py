"""Sets CrewAI up for tests: no telemetry, no network, nothing kept outside the tests' folder.

It is imported before CrewAI.
"""

from __future__ import annotations

import os
import tempfile
import warnings

for _name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "OTEL_SDK_DISABLED"):
    os.environ[_name] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"
os.environ["CREWAI_TESTING"] = "true"
os.environ["CREWAI_DISABLE_VERSION_CHECK"] = "true"
os.environ["CREWAI_STORAGE_DIR"] = tempfile.mkdtemp(prefix="agent-saga-crewai-")
os.environ.setdefault("OPENAI_API_KEY", "none")

with warnings.catch_warnings():  # what CrewAI does while it is imported is not ours
    warnings.simplefilter("ignore")
    import crewai  # noqa: F401
