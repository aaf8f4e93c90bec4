"""About ids: prompt groups, rollouts, turns, and rows that only fill a batch."""
