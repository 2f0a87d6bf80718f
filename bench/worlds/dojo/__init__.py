"""AgentDojo's four offices, and the injected tasks that make an agent go rogue in them."""
