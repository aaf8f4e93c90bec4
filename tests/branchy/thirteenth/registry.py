"""All of them, with what is known of each."""

from tests.branchy.thirteenth import (
    groups_z_entries,
    kernels_z_entries,
    masks_z_entries,
    memory_z_entries,
    ranks_z_entries,
)

_THEMES = (kernels_z_entries, groups_z_entries, ranks_z_entries, memory_z_entries, masks_z_entries)
WRONG = tuple(entry for theme in _THEMES for entry in theme.WRONG)
RIGHT = tuple(entry for theme in _THEMES for entry in theme.RIGHT)

__all__ = ["RIGHT", "WRONG"]
