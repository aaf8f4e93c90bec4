"""``aggverify new``: from a person's function to files that run at once."""
