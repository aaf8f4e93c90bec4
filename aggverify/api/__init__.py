"""The library: what a person imports. Small and stable; ``tests/api`` pins the names."""
