"""All of them, with what is known of each."""

from tests.branchy.latest.right import RIGHT
from tests.branchy.latest.wrong import WRONG

__all__ = ["RIGHT", "WRONG"]
