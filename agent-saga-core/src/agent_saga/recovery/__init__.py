"""What happens after the process died: finding what stands, taking it over, undoing it, or asking.

Read in this order: `survey` (what is open), `rebuild` (a saga from its records), `claim` (taking
over; `epochs` is the store's side of it), `recover` (undoing it), `cases` and `queue` (what needs a
human), `undo` (undoing a committed saga), `undo_steps` (for a program), `daemon` (pass after pass).

- What cannot be believed or is gone: `proofs`, `losses`, `vanished`.
- What is left alone: `calls` that may still run or arrive, sagas that wait for their program
  (`hold`, `suspended`), `quarantine`, and what went wrong just now (`pauses`).
- What people are told: `looking` (what would be done now), `next_step` (what a person does),
  `notices` of cases, `askers` of approvals, and `seen` of passes.
"""
