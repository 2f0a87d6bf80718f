"""What every package for an agent framework needs, and none of them should have a version of.

Rules of this part:

- It knows no framework.
- Nothing of it is loaded by `import agent_saga`; the packages load it.
"""
