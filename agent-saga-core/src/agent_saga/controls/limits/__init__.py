"""Limits: how much and how often, within a time that slides along.

`limit` is what a program writes, `scopes` says what is counted apart, `window` holds the counting
itself as pure functions, `memory` and `shared` keep the counts in this process or in a state store,
`control` is the place in the gate, `upkeep` mends shared counts after a crash, and `usage` tells
what was used.
"""
