"""Takes a guard out of a process that a test of `tools.guards` started.

Python imports this file by itself, because the plugin put its folder on the path.
"""

from __future__ import annotations

import os

_wanted = os.environ.get("AGENT_SAGA_TEST_WITHOUT_GUARD")
if _wanted:
    from tools.without_guard import remove

    remove(_wanted)
