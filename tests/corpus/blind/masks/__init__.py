"""About masks: holes, padding, and what sums are divided by."""
