"""Pure writers of events and verdicts."""
