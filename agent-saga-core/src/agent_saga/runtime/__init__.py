"""The composition root: settings and plugins become log, gate, pool and engine."""
