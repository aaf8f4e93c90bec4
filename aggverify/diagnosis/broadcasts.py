"""Tensors that do not broadcast, from the sizes that torch names in its exception."""

from __future__ import annotations

import re

from aggverify.steps.case import Case
from aggverify.world import Raised

SAMPLES_AT_TOKENS = "samples where tokens stand"
_MISMATCH = re.compile(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton "
    r"dimension 1\b"
)


def samples_at_tokens(case: Case, error: Raised) -> bool:
    """Whether one last dimension is a micro-batch's samples, the other their longest response.

    Only without context parallelism, which gives ranks parts of responses.
    """
    found = _MISMATCH.search(error.message)
    if found is None or case.layout.cp_size > 1:
        return False
    lengths = [sample.response_length for sample in case.step.samples]
    sizes = ({len(cell), max(lengths[i] for i in cell)} for *_, cell in case.layout.cells() if cell)
    return set(map(int, found.groups())) in sizes
