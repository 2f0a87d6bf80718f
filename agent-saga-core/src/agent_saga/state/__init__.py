"""Small shared state with atomic updates: claims, epochs, allowances, switches.

`base` is the port, `memory` and `sqlite` are the backends, `claims` holds the rules for a saga's
owner, and `address` opens a store by its address. The log is the truth; a store holds claims and
allowances only.
"""
