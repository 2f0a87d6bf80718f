"""Pure values and rules: no I/O, no clock of its own, no framework.

Everything here can be tested exhaustively and is used the same way by the running process, by
recovery and by the command line.
"""
