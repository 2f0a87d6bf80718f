"""The agent's tools for a process that a person started: its world is named in the environment."""

from __future__ import annotations

import os

from chaos import agent  # noqa: F401 - registers the handlers

from agent_saga_testing.crash import Bench, Order, use

if "CHAOS_FOLDER" in os.environ:
    use(Bench(Order("daemon", "", os.environ["CHAOS_FOLDER"], (), None, None)))
