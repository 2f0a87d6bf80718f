"""The write-ahead log: what is announced before it happens, and how it ended.

Rules of this part:

- `encoding` is the one entrance: nothing reaches a log that did not pass it.
- `base` is the log above its backends; `file`, `memory` and `sink` say where lines go; `reader`
  reads what is there without editing it, and `judging` tells what is damaged; `address` opens a
  log by its address.
- Writing: `intake`, `buffer`, `draining` into `segments`, `durability`. Reading: `reader`, and
  `scan` where it has to be fast. Taking a dead writer over: `takeover`, `lock`. What leaves:
  `compaction`, with `candidates`, `rewriting` and `exchange`.
- `os_port` holds every system call; no other module of the log calls the operating system.
- Nothing is imported here: a program pays for the backend that it uses.
"""
