"""What happens after the process died: finding what stands, taking it over, undoing it, or asking.

Read in this order: `survey` (what is open), `rebuild` (a saga from its records),
`claim` (taking over), `recover` (undoing it), `cases` and `queue` (what needs a human), `undo`
(undoing a committed saga), `daemon`. `calls` tells which calls may still run or arrive, `hold` and
`suspended` which sagas wait for their program; `notices` tells of cases, and `seen` of passes.
"""
