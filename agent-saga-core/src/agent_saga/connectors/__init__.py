"""Doors to the connector packages, each under the vendor's name; see `plugins.door`."""
