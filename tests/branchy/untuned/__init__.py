"""Reducers written last, without a look at the generator, which is never tuned to them."""
