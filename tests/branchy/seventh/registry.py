"""All of them, with what is known of each."""

from tests.branchy.seventh import (
    groups_t_entries,
    kernels_t_entries,
    masks_t_entries,
    memory_t_entries,
    ranks_t_entries,
)

_THEMES = (kernels_t_entries, groups_t_entries, ranks_t_entries, memory_t_entries, masks_t_entries)
WRONG = tuple(entry for theme in _THEMES for entry in theme.WRONG)
RIGHT = tuple(entry for theme in _THEMES for entry in theme.RIGHT)

__all__ = ["RIGHT", "WRONG"]
