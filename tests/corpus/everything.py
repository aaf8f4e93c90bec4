"""All reducers of the corpus in one module, so that one template process serves them all."""

from __future__ import annotations

from tests.corpus import groups
from tests.corpus.families import FAMILIES, RIGHT

reduce_loss = groups.reduce_loss
"""SkyRL's convention looks for it beside the reducer."""

for family in FAMILIES:
    for mutant in family.MUTANTS:
        globals()[mutant.function] = getattr(family, mutant.function)
for right in RIGHT:
    for entry in right.CORRECT:
        globals()[entry.function] = getattr(right, entry.function)
