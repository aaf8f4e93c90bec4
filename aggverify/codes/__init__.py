"""Every finding and warning code, and what each of them means."""
