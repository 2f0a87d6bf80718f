"""Doors to the framework packages, each under the framework's name; see `plugins.door`."""
