"""Doors to connectors, each under the vendor's name; none is released yet, see `plugins.door`."""
