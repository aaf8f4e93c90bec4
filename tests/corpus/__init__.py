"""The verifier verified: reducers with bugs that really happened, wrong and right ones written
blind, and those with branches. Ranks import this package, so it imports nothing."""
