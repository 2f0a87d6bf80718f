"""The commands of the core, each in the module of its name."""
