"""Conformance kits: what every backend of a port must pass. `state` and `wal` hold one each."""
