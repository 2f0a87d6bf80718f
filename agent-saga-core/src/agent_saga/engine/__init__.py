"""The engine: one step, its undoing, and the boundary round them.

Read in this order: `protocol` (a step), `attempts` and `recording` (its calls, and how they ended),
`endings` (what an ending means), `settle` (unknown endings), `inverse`, `unwind` and `branch`
(undoing), `commit`, `boundary` (the two doors in and out), `suspend` and `replay` (going on in
another run). `journal` writes every record that they need. The protocols are generators that yield
`requests`; `drive_async` and `drive_sync` carry them out.

- What a user declares and holds: `tool`, `forms`, `derive`, `retry`, `options`; `wrap`, `handle`.
- What lives in memory: `saga`, `scope`, `step`; `active` knows the open ones.
- Which step a call is: `admission`, `earlier`, `replay`, `within`. Who judges it: `judging`,
  `asking`, `foreseen`.
- What ends in other ways: `late` calls, `interrupts`, `quitting`, `releasing`. What callers are
  told: `telling`.
"""
