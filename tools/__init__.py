"""Small programs of this workspace; none of them is shipped.

Rules of this part:

- What `run.py` needs before anything is installed uses the standard library only:
  `environment`, `interpreters`, `stages`, `processes` and `results`.
- Every module is one program or one idea and says in its docstring how it is called.
"""
