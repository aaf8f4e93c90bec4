"""The rank's side: load the candidate, shard a step, call, watch what it does to its arguments."""
