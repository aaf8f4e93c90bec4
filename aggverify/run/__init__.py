"""Plan, phases and events of one verification; knows nothing of who listens."""
