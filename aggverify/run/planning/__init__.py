"""From a request and what the target offers to the subjects under test."""
