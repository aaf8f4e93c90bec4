"""Reducers from other hands: whoever wrote them knew the modes, the codes and the two corpora
beside this one, and had not seen how a verifier searches, nor run it on any of them.

What is true of each (``causes``) was written down with it. The figure that nothing was tuned to is
that of the first run (``reports/fresh-first.json``). Files are as in ``unread``: reducers in files
such as people write, what is known of them in ``registry.py``. Ranks import this package, so it
imports nothing.
"""
