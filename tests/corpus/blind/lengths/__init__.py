"""About lengths: tallies, and branches on equal or short ones."""
