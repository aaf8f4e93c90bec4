"""About worlds: ranks, shards, micro-batches, and what collectives carry."""
