"""Bugs of denominators: what is counted, how, and in which arithmetic."""

from __future__ import annotations

from aggverify.diagnosis.bugs.base import Bug
from aggverify.diagnosis.clues import Broken, Claimed, Count, Off, Shape, sign
from aggverify.diagnosis.terms import TOKENS

BUGS: tuple[Bug, ...] = (
    Bug(
        "phantom-tokens",
        "the sum over samples of max(tokens, 1): a fully masked sample counts as one token",
        "slime since #365; miles #2796",
        "clamp the step's count once, not each sample's (or declare phantom_tokens = yes)",
        (sign("phantom_tokens=yes"),),
    ),
    Bug(
        "phantom-tokens",
        "the sum over samples of max(tokens, 1): a fully masked sample counts as one token",
        "slime since #365; miles #2796",
        "clamp the step's count once, not each sample's",
        (Shape(Count(r".*\(each (sample|rollout|prompt group) at least one\)", "", None)),),
    ),
    Bug(
        "empty-micro-batch-counted",
        "an empty micro-batch counts as one token",
        "empty bins of dynamic batching",
        "clamp the all-reduced count, not each micro-batch's",
        (Shape(Count(r".*\(each (micro-batch|rank) at least one\)", "", None)),),
    ),
    Bug(
        "counted-after-rejection",
        "denominators count the mask after rejection: the fewer are kept, the more they weigh",
        "slime 2025, verl",
        "count the original mask (or declare denominators = post_rejection)",
        (sign("denominators=post_rejection"),),
    ),
    Bug(
        "counted-before-final",
        "tokens are counted before the masks are final: dropped ones stay in the denominator",
        "TRL #6439",
        "count after the last change to the masks (or declare denominators = original)",
        (sign("denominators=original"),),
    ),
    Bug(
        "dummy-rows-counted",
        "rows that only fill up a batch keep a mask of 1: they are summed and counted",
        "rllm #508",
        "give every row that is no sample of the step a mask of 0",
        (sign("filled-up"),),
    ),
    Bug(
        "empty-units-left-out",
        "fully masked rollouts or groups are left out of the number averaged over",
        "verl (one of its two paths)",
        "count every unit of the step (or declare empty_units = exclude)",
        (sign("empty_units=exclude"),),
    ),
    Bug(
        "sample-denominators",
        "each sample of a rollout divided by its own tokens, the sum averaged over rollouts",
        "miles FSDP; slime's hook without sample_denoms",
        "divide every sample of a rollout by the whole rollout's token count",
        (sign("several_samples=samples_over_rollouts"),),
    ),
    Bug(
        "rollouts-for-prompts",
        "the sum over prompt groups divided by the number of rollouts: G times too small",
        "slime #2090, 6f708931c",
        "divide by the number of prompt groups in the step",
        (Off(("P/N",)), Claimed(modes=("prompt_mean",))),
    ),
    Bug(
        "prompts-from-rollouts",
        "the number of prompts taken as N / G with a fixed G, although groups are incomplete",
        "slime #2090, miles #1498",
        "count the groups that are present in the step",
        (Off(sizes=(("P", 1), ("N", -1))), Claimed(modes=("prompt_mean",))),
    ),
    Bug(
        "row-means-in-a-group",
        "the mean of each group's row means instead of the group's token mean",
        "TRL #5828",
        "divide a group's sum by the group's token count",
        (
            Shape(
                Count(TOKENS, "sample|rollout"),
                outer=(Count("samples|rollouts", "prompt group", None), Count("prompt groups")),
            ),
            Claimed(modes=("prompt_mean",)),
        ),
    ),
    Bug(
        "groups-by-position",
        "prompt groups taken by position, as in view(-1, G), where their sizes differ",
        "AReaL #1423, #1673",
        "group by prompt id",
        (Shape(Count(TOKENS, r"\d samples in a row.*", None)),),
    ),
    Bug(
        "attention-mask-counted",
        "prompt tokens are counted with the response: the attention mask for the loss mask",
        "SkyRL #909",
        "count the loss mask",
        (Shape(Count("prompt and response tokens", ".*", None)),),
    ),
    Bug(
        "response-lengths-counted",
        "response lengths for token counts: masked tokens are counted",
        "slime before #365",
        "count the loss mask",
        (Shape(Count("response tokens", ".*", None)),),
    ),
    Bug(
        "padded-width",
        "the padded width of the batch at hand for the constant divisor",
        "verl core_algos",
        "pass the divisor as a number that no batch changes",
        (Shape(Count("the longest .*", ".*", None)),),
    ),
    Bug(
        "sum-still-divided",
        "the token-sum branch still divides by a length",
        "verl 4d722b176",
        "return the masked sum as it is",
        (
            Shape(Count(TOKENS, "sample|rollout", None)),
            Claimed(modes=("token_sum", "sequence_sum")),
        ),
    ),
    Bug(
        "hardcoded-divisor",
        "divides by a number written into the code",
        "miles' Dr.GRPO example, #1328",
        "take the divisor from the configuration",
        (sign("constant-factor"), Claimed(modes=("constant",))),
    ),
    Bug(
        "number-for-a-count",
        "divides by a number written into the code, whatever the step",
        "miles' Dr.GRPO example, #1328",
        "divide by a count of the step, or declare the mode constant with its divisor",
        (
            sign("divided-by-a-number"),
            Claimed(modes=("token_mean", "sample_mean", "prompt_mean", "sequence_sum")),
        ),
    ),
    Bug(
        "sum-for-a-mean",
        "the plain sum where a mean was meant: a step twice as long counts twice",
        "a sum where a mean was meant",
        "divide by the count of the step",
        (sign("weights of token_sum"),),
    ),
    Bug(
        "another-mode",
        "the weights of another mode",
        "autonomous-dev #413 (a mode flag that changes nothing), papers and code that disagree",
        "compute what the mode's name says, or call it by its formula",
        (
            sign(
                "weights of sample_mean",
                "weights of prompt_mean",
                "weights of token_mean",
                "weights of sequence_sum",
                "weights of constant",
            ),
        ),
    ),
    Bug(
        "epsilon-outside",
        "a constant added to the loss after the division: f(0) is not 0",
        "keras #21908",
        "put the guard into the denominator: total / max(count, 1)",
        (sign("affine"),),
    ),
    Bug(
        "epsilon-inside",
        "a small number added to the count of every unit",
        "verl, OpenRLHF, NeMo-RL, ROLL",
        "use max(count, 1): exact, and finite for an empty unit",
        (sign("epsilon-inside"),),
    ),
    Bug(
        "counted-in-16-bits",
        "the mask is summed in 16 bits: 257 becomes 256",
        "bf16 mask.sum()",
        "sum the mask as integers or in float32",
        (sign("rounded-count"),),
    ),
    Bug(
        "no-floor",
        "0 / 0: what has no token is divided by its count of 0",
        "ROLL's masked_mean; verl, OpenRLHF (why they add 1e-8); slime 82d3f94a3",
        "divide by max(count, 1)",
        (Broken(forward=True),),
    ),
    Bug(
        "metric-before-a-rescale",
        "the loss is reported before (or after) a rescale that the gradient does not share",
        "TRL #7011",
        "report the scalar whose backward is taken",
        (sign("value-scaled"),),
    ),
)
