"""Plugins: the hooks, their manager, and the named handlers that plugins and decorators register.

Start at `specs` (the manual of the hooks), `registration` (the decorators) and `manager`.
"""
