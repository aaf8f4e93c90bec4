"""About dtypes: number formats, rounding, and counts in them."""
