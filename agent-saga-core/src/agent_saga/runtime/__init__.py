"""The composition root: settings and plugins become log, gate, pool and engine.

`composition` puts them together; `settings`, `logs`, `stores` and `builtin` are its parts.
`identified` and `resuming` are sagas with an id of the user's own, `forking` those that go another
way. `daemon` is `RecoveryDaemon`. `feed` leads from the log to observers, `claims` tells the state
store how a saga was left, and `left` tells what dead processes left.
"""
