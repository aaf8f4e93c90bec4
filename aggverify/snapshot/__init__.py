"""Bit-for-bit parity of a reducer with its recorded self."""
