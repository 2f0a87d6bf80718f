"""The policy file: rules, limits and tools' declarations that a security team owns.

`form` is what may stand in a file, `reading` reads TOML, JSON and YAML, `build` makes rules and
limits of it, and `policy` is what a program holds and loads again on request.
"""
