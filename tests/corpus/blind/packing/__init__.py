"""About packing: streams, segments, boundaries and indices."""
