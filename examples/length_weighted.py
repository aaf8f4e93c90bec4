"""An oracle of one's own: every rollout counts in proportion to the square root of its tokens.

    aggverify check my_reducer.py --oracle examples/length_weighted.py

``weights(step)`` gives one exact weight per response token, flat, 0 where masked.
"""

from fractions import Fraction
from math import isqrt


def weights(step):
    roots = [Fraction(isqrt(s.num_unmasked * 10**12), 10**6) for s in step.samples]
    total = sum(roots) or 1
    return [
        root / (total * s.num_unmasked) if bit else 0
        for s, root in zip(step.samples, roots, strict=True)
        for bit in s.loss_mask
    ]
