"""Tool worlds that other people wrote, and what agent-saga leaves in them when a run fails.

`world` says what a world is, `plans` and `traces` how its tools are declared, a folder per world
(`bfcl`) holds its adapter and its table of inverses. `faults` breaks a call, `running`, `killing`
and `beside` run a trajectory through the public API, `judging`, `standing` and `outcome` compare
the whole world before and after, `measures` counts. `mutants` breaks the inverses: the judge is
judged, too.
"""
