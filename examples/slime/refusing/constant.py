"""constant as a slime / miles hook that says no to context parallelism, and is right without.

Exit 0: "conforms: constant; refuses context parallelism". With ``--claim context-parallel`` the
refusal is a failure, and with another ``--divisor`` the weights are.
"""

from megatron.core import mpu

AGGVERIFY = {"mode": "constant", "divisor": 16.0}
DIVISOR = 16.0


def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    assert mpu.get_context_parallel_world_size() == 1, "only supports cp_size == 1"

    def reduce(losses):
        pieces = losses.split(response_lengths)
        return sum((x * mask).sum() for x, mask in zip(pieces, loss_masks, strict=True)) / DIVISOR

    return reduce
