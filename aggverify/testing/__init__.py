"""aggverify in a person's own pytest suite: tests from one line, shared ranks, a summary."""
