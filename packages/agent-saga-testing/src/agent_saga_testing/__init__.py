"""Prove your tools and your backends: what agent-saga tests itself with, for your tests too.

Each part is a module of its own, imported by whoever uses it:

- `tools`: tools that lose their answer, fail before their effect, are slow, or are counted.
- `clock`: a clock that moves when it is told to.
- `world`: a small world of effects in a real database, with assertions about what happened in it.
- `faults`: system calls that fail, hang, come up short or crash, and disks that lose power.
- `crash`: agents and daemons in real processes, killed where a test says.
- `stories`: random stories of kills, daemons and operators, and the verdict on them.
- `doubles`: a log and a state store in memory, which pass the same kits as the real ones.
- `kits`: the conformance kits for log and state backends.
- `integration`: the conformance kit for packages that put agent-saga into an agent framework.
- `pytest_plugin`: fixtures for all of these, found by pytest by itself.
"""
