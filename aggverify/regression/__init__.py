"""Two verdict documents, and what becomes worse from one to the other: pure, nothing is run."""
