"""The circuit breaker: a tool that keeps failing is left alone for a while, then tried with care.

`policy` is what a program writes, `circuit` holds the rules as pure functions over a document,
`counts` the counting of each process, and `breaker` is the place in the gate.
"""
