"""Tool worlds that other people wrote, and what agent-saga leaves in them when a run fails.

`world` says what a world is, `plans` how its tools are declared, a folder per world (`bfcl`)
holds its adapter and its table of inverses. `faults` breaks a call, `running` runs a trajectory
through the public API, `judging` compares the whole world before and after, `figures` counts.
"""
