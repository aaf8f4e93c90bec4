"""Two verdict documents compared, in every format and on every kind of change."""
