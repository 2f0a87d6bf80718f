"""`python -m agent_saga.cli`: the same as `agent-saga`."""

from __future__ import annotations

import sys

from agent_saga.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
