"""One step as data: the case, its layout over ranks, notation; the same step in another order."""
