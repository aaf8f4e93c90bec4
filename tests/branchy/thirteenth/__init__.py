"""Reducers from a thirteenth set of hands, who had not read how the verifier searches, nor run it.

Right ones alone: they are to show false alarms. Ranks import this package, so it imports
nothing.
"""
