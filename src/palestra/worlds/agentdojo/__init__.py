"""AgentDojo's four suites: an agent with tools works for a user, and texts that it reads may attack it."""
