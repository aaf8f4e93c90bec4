"""Reducers written last, without a look at the generator, which is never tuned to them."""

from tests.branchy.untuned import chunks, masks, numbers, surroundings, worlds
from tests.branchy.untuned.base import RIGHT, WRONG, Untuned

__all__ = ["RIGHT", "WRONG", "Untuned", "chunks", "masks", "numbers", "surroundings", "worlds"]
