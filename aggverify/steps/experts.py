"""Which parameters of a whole training step's model are experts', and which ranks hold them.

Every second response token's weight is read from an expert's parameter, all others from one that
every rank has: a step that treats the two differently shows both in one update.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aggverify.steps.layouts import Layout


def parallel_size(layout: Layout) -> int:
    """Ranks that share one set of experts: neighbours, two where the world can be cut in pairs."""
    return 2 if layout.world_size % 2 == 0 else layout.world_size


def owners(tokens: int, size: int) -> npt.NDArray[np.int64]:
    """Per response token of a step, flat: which of ``size`` ranks holds its expert; -1 without."""
    number = np.arange(tokens, dtype=np.int64)
    return np.where(number % 2 == 1, number // 2 % size, -1)
