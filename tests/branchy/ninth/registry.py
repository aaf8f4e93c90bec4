"""All of them, with what is known of each."""

from tests.branchy.ninth import (
    groups_v_entries,
    kernels_v_entries,
    masks_v_entries,
    memory_v_entries,
    ranks_v_entries,
)

_THEMES = (kernels_v_entries, groups_v_entries, ranks_v_entries, memory_v_entries, masks_v_entries)
WRONG = tuple(entry for theme in _THEMES for entry in theme.WRONG)
RIGHT = tuple(entry for theme in _THEMES for entry in theme.RIGHT)

__all__ = ["RIGHT", "WRONG"]
