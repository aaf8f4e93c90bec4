"""All of them, with what is known of each."""

from tests.branchy.later.right_a import RIGHT_A
from tests.branchy.later.right_b import RIGHT_B
from tests.branchy.later.wrong_a import WRONG_A
from tests.branchy.later.wrong_b import WRONG_B
from tests.branchy.later.wrong_b2 import WRONG_B2

WRONG = (*WRONG_B, *WRONG_B2, *WRONG_A)
RIGHT = (*RIGHT_B, *RIGHT_A)

__all__ = ["RIGHT", "WRONG"]
