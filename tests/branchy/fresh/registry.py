"""All of them, with what is known of each."""

from tests.branchy.fresh.right import RIGHT
from tests.branchy.fresh.wrong import WRONG

__all__ = ["RIGHT", "WRONG"]
