"""About kernels: fused, chunked and tiled losses with backward passes of their own."""
