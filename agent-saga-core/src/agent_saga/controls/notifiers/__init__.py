"""How people are told of a request: on a terminal, by a webhook, or by a plugin's own way."""
