"""The words of the page about the worlds; its figures come from `report`."""

from __future__ import annotations

from typing import Final

HEAD: Final = """# How often "clean" is true

A library that undoes what an agent did can be wrong in a way that nobody notices: it says that
all is undone, and the world differs. The only judge of that is the world. So agent-saga is let
loose in environments that other people wrote, with the trajectories that they recorded: BFCL's
multi-turn tasks, tau2-bench (called in the process, and behind MCP servers), and AgentDojo. At one
call of a run something goes wrong, and afterwards the whole state of the environment is compared,
field by field.

Inverses, probers and what an inverse leaves behind are declared in tables that use nothing but
the environments' own public tools; they stand in `bench/worlds/` and are short enough to audit. A
trace names one place, with the arguments and the result of its own step in it, and is used up by
what it excuses. The judge is judged, too: `python -m bench.worlds.mutants` replaces every inverse
by one that does nothing and reports success, and by one that runs twice, and both have to be seen.
"""

COLUMNS: Final = """What the columns say; shares have their intervals at 95 %:

- **met**: runs whose fault struck. One that the gate ended before says nothing about the fault, and
  is in none of the shares.
- **exact**, **within declared**: the world is what it has to be; or but for what was declared.
- **false clean**: the report says clean, and the world differs beyond that, or something stands.
- **false dirty**: the report says that something stands, and nothing does.
- **doubled**: effects that happened twice, and inverses that ran again after they took effect.
- **repeats**: the same of calls that are declared to harm nobody, such as reading a page.
- **settled**: lost answers that a prober could tell about, of those that a tool of the world shows.
- **refused**: runs that the gate ended. **cost**: of the runs that would have ended well, those
  that were refused.
- **collateral**: runs whose undoing changed what another saga had made, of those beside one.
"""

CROSSED: Final = """Each world with each fault: runs that ended exactly / within what was declared /
met their fault, of those drawn, and then false cleans + doubled effects.
"""

PRESENT: Final = """## With a user who approves

The same with somebody who approves what the task wants, so that nothing is refused and calls that
nothing takes back are made. After a failed run they stand, and the report has to say so: to be
clean then counts as false. What has to stand is what such a call was seen to change when it was
made. A call that could be undone at another time, but not as things are, is one of these.
"""

MIXED: Final = """## Tasks that nobody recorded

The same with trajectories made out of recorded ones: calls of other tasks are put in, left out,
repeated and exchanged, so that many are answered with errors, and some call tools that no recorded
task calls. The tables were not tuned to them.
"""

GRAPH: Final = """## Through a framework

The same calls as an agent of LangGraph whose model says what was recorded. A refusal is shown to
the model, as the framework does, and the run goes on.
"""

ROGUE: Final = """## Agents that were talked into something else

AgentDojo's injected tasks, made half-way through a user's task; the user approves what the task is
about and nothing else, also no visit to a page that it does not name. Contained means that nothing
is left but what the user approved and what was declared. The benign twin is the same task without
the injection. Injected tasks that come without recorded calls get some that do what they want, by
their own judgement; one that only says something is not run.
"""

PEERS: Final = """## Beside others

The same runs and the same inverses, through other published libraries, each with what it has a
place for. None of them claims to look at the world; what is counted is what its result tells a
user. The false cleans are split: **missing guard** are runs in which nothing differs but what calls
did that nothing takes back, and a guard before the call is what none of them claims to be; **undo**
are the others: a lost answer, an inverse that is not looked at. agent-saga runs twice: with nobody
to approve, where its gate ends runs in which the others go on, and with a user who approves all,
where nothing is refused and the same effects stand: there it is the telling alone that differs.
"""

TAIL: Final = """## What this does not say

The environments are small and answer at once, and their tools are better behaved than many real
ones. A table with a wrong inverse would make a false clean that no library can see; the figures
are about these tables. The user who approves is played by the recorded task: real ones approve
less well. In the runs beside another saga both calls do not need each other, and there are two
sagas, not many.

Restoring a world is not the same as making good: a mail that was sent is read.
"""
