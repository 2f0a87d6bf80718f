"""The engine: one step, its undoing, and the boundary round them.

Read in this order: `protocol` (a step), `endings` (what an ending means), `settle` (unknown
endings), `inverse`, `unwind` and `branch` (undoing), `commit`, `boundary` (the two doors in and
out), `suspend` and `replay` (going on in another run). `journal` writes every record that they
need. The protocols are generators that yield `requests`; `drive_async` and `drive_sync` carry them
out.
"""
