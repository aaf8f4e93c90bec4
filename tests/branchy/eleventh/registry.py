"""All of them, with what is known of each."""

from tests.branchy.eleventh import (
    groups_x_entries,
    kernels_x_entries,
    masks_x_entries,
    memory_x_entries,
    ranks_x_entries,
)

_THEMES = (kernels_x_entries, groups_x_entries, ranks_x_entries, memory_x_entries, masks_x_entries)
WRONG = tuple(entry for theme in _THEMES for entry in theme.WRONG)
RIGHT = tuple(entry for theme in _THEMES for entry in theme.RIGHT)

__all__ = ["RIGHT", "WRONG"]
