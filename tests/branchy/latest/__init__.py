"""Reducers from a fourth pair of hands: whoever wrote them knew the modes, the codes and the names
of the three corpora beside this one, and had not seen how a verifier searches, nor run it on any.

What is true of each (``causes``) was written down with it. The figure that nothing was tuned to is
that of the first run (``reports/latest-first.json``). Files are as in ``fresh``: reducers in files
such as people write, what is known of them in ``registry.py``. Ranks import this package, so it
imports nothing.
"""
