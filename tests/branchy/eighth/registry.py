"""All of them, with what is known of each."""

from tests.branchy.eighth import (
    groups_u_entries,
    kernels_u_entries,
    masks_u_entries,
    memory_u_entries,
    ranks_u_entries,
)

_THEMES = (kernels_u_entries, groups_u_entries, ranks_u_entries, memory_u_entries, masks_u_entries)
WRONG = tuple(entry for theme in _THEMES for entry in theme.WRONG)
RIGHT = tuple(entry for theme in _THEMES for entry in theme.RIGHT)

__all__ = ["RIGHT", "WRONG"]
