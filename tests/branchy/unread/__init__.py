"""A last part of the branchy corpus, written without a look at the generator, the checks' shapes
or any figure; the issue that asks for it, and the README's list of checks, had been read. Nothing
is tuned to it, and it is never tuned to be found.

The reducers are in files such as people write, with none of the tests in them; what is known of
each (its mode, where it is met, a step on which it is wrong) is in ``registry.py``. Ranks import
this package, so it imports nothing.
"""
