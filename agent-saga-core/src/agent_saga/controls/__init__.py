"""What is judged before an effect; the engine makes the calls.

`control` is the seam: what a control is, and how one waits for a store. `gate` puts controls, rules
and approvals into their order and asks them. `installed` holds what the process has set for every
gate. Each kind of control has a module or a folder of its own.
"""
