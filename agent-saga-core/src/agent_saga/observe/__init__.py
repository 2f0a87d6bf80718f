"""What can be watched: ids on log records, the event stream, counters.

Start at `events` (what observers get), `logging` (opt-in set-up) and `metrics`.
"""
