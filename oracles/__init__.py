"""The truth: exact step scalars and token weights of every aggregation mode."""
