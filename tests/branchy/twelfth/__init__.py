"""Reducers from a twelfth set of hands, who had not read how the verifier searches, nor run it.

What is true of each was written down before any run. Ranks import this package, so it imports
nothing.
"""
