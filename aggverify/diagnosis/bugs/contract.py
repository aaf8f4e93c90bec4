"""Bugs of behaviour: what a reducer keeps, alters, accepts or reports besides its weights."""

from __future__ import annotations

from aggverify.checks.logged_keys import MEAN_OF_MEANS, WHOLE_COUNTS
from aggverify.checks.logs import OTHER_COUNT, PART_SILENT, RESCALED, RUNNING_TOTAL
from aggverify.checks.windows import EARLIER_STEP, LAST_WINDOW
from aggverify.codes import Symptom
from aggverify.conventions.log_forms import FORMS
from aggverify.diagnosis.bugs.base import Bug
from aggverify.diagnosis.clues import sign

SHORTENED = tuple(
    f"accepts {name}" for name in ("rollout-tokens", "group-tokens", "short-lengths", "short-masks")
)
"""Misuses in which a list is one short."""
UNLIKE_LOGS = tuple(
    f"accepts {name}: {text}" for name, form in FORMS.items() for text in form.spoils
)
"""Logs of micro-batches that cannot be added up."""
BUGS: tuple[Bug, ...] = (
    Bug(
        "earlier-windows-counted",
        "the losses are divided by a count over this step and earlier ones",
        "TRL #5619 / #6024 (num_items_in_batch over the generation batch)",
        "count what the update sums over: one optimizer window, and 0 before its first micro-batch",
        (sign(Symptom.STATE_KEPT, Symptom.NOT_REPEATABLE), sign("a count over earlier steps")),
    ),
    Bug(
        "not-repeatable",
        "the same step gives other results when it is run again",
        "dropout or sampling inside a loss, unordered accumulation",
        "leave random numbers out of the reduction, and add in a fixed order",
        (sign(Symptom.NOT_REPEATABLE),),
    ),
    Bug(
        "state-between-steps",
        "something of an earlier step is used for this one",
        "a denominator cached from the previous step",
        "compute denominators from this call's arguments, or key a cache by all of them",
        (sign(Symptom.STATE_KEPT, EARLIER_STEP),),
    ),
    Bug(
        "configured-window",
        "scaled by a configured number of micro-batches where the actual one differs",
        "ms-swift #10084",
        "use the number of micro-batches of this very step",
        (sign(Symptom.PARTIAL_WINDOW), sign(LAST_WINDOW)),
    ),
    Bug(
        "epsilon-outside",
        "a constant added to the loss after the division: f(0) is not 0",
        "keras #21908",
        "put the guard into the denominator: total / max(count, 1)",
        (sign(Symptom.CONSTANT_ADDED),),
        in_numbers=True,
    ),
    Bug(
        "not-linear",
        "the loss is not linear in the losses: a clip, a selection or a normalisation by them",
        "SkyRL since #1296: advantages prescaled before kl_cov and clip_cov; TRL #3823 (GSPO)",
        "clip, select and normalise before losses are reduced; where the objective itself is not "
        "linear (a ratio of sequences, whitened advantages), --mode nonlinear",
        (sign(Symptom.NOT_LINEAR),),
    ),
    Bug(
        "arguments-changed",
        "losses, masks or lists of the caller are changed in place",
        "SkyRL #925 (subsequent epochs keep dividing)",
        "work on copies: x * y for x *= y, .clone() before writing",
        (sign(Symptom.ARGUMENTS_CHANGED),),
    ),
    Bug(
        "flag-without-effect",
        "the mode is accepted and changes nothing",
        "autonomous-dev #413",
        "branch on the mode, and raise for one that is not implemented",
        (sign(Symptom.MODE_IGNORED),),
    ),
    Bug(
        "two-meanings-of-an-argument",
        "a list of denominators passes for calculate_per_token_loss = True",
        "slime's fourth positional argument is sample_denoms, miles' is calculate_per_token_loss",
        "make the flag keyword-only, or refuse what is not a bool",
        (sign(Symptom.MISUSE_ACCEPTED), sign("accepts denominators")),
    ),
    Bug(
        "zip-without-strict",
        "lists of different lengths are zipped: what has no partner is silently left out",
        "slime (zip without strict drops samples without a denominator)",
        "zip(..., strict=True)",
        (sign(Symptom.MISUSE_ACCEPTED), sign(*SHORTENED)),
    ),
    Bug(
        "unlike-logs-merged",
        "logs of micro-batches are added up by position, whatever their keys are",
        "slime's reduce_train_step_metrics: the first micro-batch's keys name the values of all",
        "compare every log's keys and number of values with the first one's, and raise",
        (sign(Symptom.MISUSE_ACCEPTED), sign(*UNLIKE_LOGS)),
    ),
    Bug(
        "unchecked-arguments",
        "arguments that contradict each other are accepted",
        "silent fallbacks for unknown modes; divisors that are missing, 0 or NaN",
        "raise ValueError naming the argument and its value",
        (sign(Symptom.MISUSE_ACCEPTED),),
    ),
    Bug(
        "copies-disagree",
        "ranks that hold the same losses report different values of one loss",
        "SkyRL #1420 (a metric averaged over copies as if they were parts)",
        "report the same value on every rank that computes it, and count it once",
        (sign(Symptom.RANKS_DISAGREE), sign("copies differ")),
    ),
    Bug(
        "metric-summed-over-cp",
        "the logged loss, or its count, is added up over context-parallel ranks once too often",
        "SkyRL #1420",
        "reduce a metric once: over the ranks that hold parts of it, not over copies",
        (sign(Symptom.LOGGED_LOSS, WHOLE_COUNTS), sign("cp_size times it", WHOLE_COUNTS)),
    ),
    Bug(
        "masked-values-logged",
        "what is logged takes masked and padded positions in, the loss does not",
        "TRL #6803 (the logged KL sums all completion positions)",
        "apply the mask to what is logged too: torch.where(mask, values, 0)",
        (sign(Symptom.MASKED_LOGGED),),
    ),
    Bug(
        "mean-of-means-logged",
        "each micro-batch's and rank's own mean is logged, and all of them have one weight",
        "Megatron-LM #7207, TRL #7047",
        "log the sum and the count, add both up over micro-batches and ranks, and divide once",
        (sign(MEAN_OF_MEANS),),
    ),
    Bug(
        "running-total-logged",
        "a total that grows over micro-batches is logged, and added up once more by who merges it",
        "a progress bar's total in a key that the trainer sums",
        "log what this micro-batch adds",
        (sign(Symptom.LOGGED_LOSS), sign(RUNNING_TOTAL)),
    ),
    Bug(
        "logged-in-part",
        "some ranks or micro-batches log zeros for losses that are part of the objective",
        "logging on the first rank only, while logs are added up over ranks",
        "log on every rank and micro-batch what it adds",
        (sign(Symptom.LOGGED_LOSS), sign(PART_SILENT)),
    ),
    Bug(
        "wrong-normaliser",
        "the logged loss is divided by another count than its own",
        "per-key normalisers in miles; one count for all keys in slime",
        "log each key with the count it is a mean over",
        (sign(Symptom.LOGGED_LOSS), sign(OTHER_COUNT)),
    ),
    Bug(
        "metric-before-a-rescale",
        "the loss is reported before (or after) a rescale that the gradient does not share",
        "TRL #7011",
        "report the scalar whose backward is taken",
        (sign(Symptom.LOGGED_LOSS), sign(RESCALED)),
    ),
    Bug(
        "logs-merged-by-position",
        "log dictionaries of ranks differ in keys, order or shape and are merged by position",
        "miles pull request",
        "log the same keys in the same order everywhere, zeros where there is nothing to say",
        (sign(Symptom.LOGS_DIFFER),),
    ),
)
