"""Pure writers of verdicts."""
