"""All of them, with what is known of each."""

from tests.branchy.tenth import (
    groups_w_entries,
    kernels_w_entries,
    masks_w_entries,
    memory_w_entries,
    ranks_w_entries,
)

_THEMES = (kernels_w_entries, groups_w_entries, ranks_w_entries, memory_w_entries, masks_w_entries)
WRONG = tuple(entry for theme in _THEMES for entry in theme.WRONG)
RIGHT = tuple(entry for theme in _THEMES for entry in theme.RIGHT)

__all__ = ["RIGHT", "WRONG"]
