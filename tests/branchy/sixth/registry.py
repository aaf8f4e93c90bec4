"""All of them, with what is known of each."""

from tests.branchy.sixth import (
    groups_s_entries,
    kernels_s_entries,
    masks_s_entries,
    memory_s_entries,
    ranks_s_entries,
)

_THEMES = (kernels_s_entries, groups_s_entries, ranks_s_entries, memory_s_entries, masks_s_entries)
WRONG = tuple(entry for theme in _THEMES for entry in theme.WRONG)
RIGHT = tuple(entry for theme in _THEMES for entry in theme.RIGHT)

__all__ = ["RIGHT", "WRONG"]
