"""What can be proved about a log afterwards.

`verify` checks every writer's chain, and what left by compaction against its attestations.
"""
