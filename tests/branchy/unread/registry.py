"""All of them, with what is known of each."""

from tests.branchy.unread.right import RIGHT
from tests.branchy.unread.wrong import WRONG

__all__ = ["RIGHT", "WRONG"]
