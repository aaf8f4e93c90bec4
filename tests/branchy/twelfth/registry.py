"""All of them, with what is known of each."""

from tests.branchy.twelfth import (
    groups_y_entries,
    kernels_y_entries,
    masks_y_entries,
    memory_y_entries,
    ranks_y_entries,
)

_THEMES = (kernels_y_entries, groups_y_entries, ranks_y_entries, memory_y_entries, masks_y_entries)
WRONG = tuple(entry for theme in _THEMES for entry in theme.WRONG)
RIGHT = tuple(entry for theme in _THEMES for entry in theme.RIGHT)

__all__ = ["RIGHT", "WRONG"]
