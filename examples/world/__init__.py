"""Five real systems for the examples to act on, and one look at all of them.

`tools` holds what an agent may call; `systems` opens the world; each other module is one system.
Nothing here knows what agent-saga has written down: the world tells what stands.
"""
