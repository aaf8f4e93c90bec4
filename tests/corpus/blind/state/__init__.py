"""About windows and state: caches, first calls, what lasts between steps, and logs of it."""
