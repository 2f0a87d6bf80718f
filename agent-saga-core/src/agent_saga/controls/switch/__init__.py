"""The kill switch: what is halted, drained or quarantined, by whom, and until when.

`scopes` says what a halt covers, `document` holds the pure rules over one document, `store` keeps
that document, `acting` is what a person does with it, and `kill_switch` what the gate asks.
"""
