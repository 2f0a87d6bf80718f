"""What users call: `AgentKit`, `saga_scope`, `@saga`, `@tool`, `current_saga`."""
