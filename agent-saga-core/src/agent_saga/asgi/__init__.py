"""agent-saga beside an ASGI application: `saga_lifespan`."""
