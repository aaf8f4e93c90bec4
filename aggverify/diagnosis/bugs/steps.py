"""Bugs of training steps that clip gradients, and of losses that weigh by ratios."""

from __future__ import annotations

from aggverify.checks.clipping import EACH_MICRO_BATCH, EACH_RANK, EACH_SHARD, NO_EFFECT, SCALED
from aggverify.checks.ratios import LAYOUTS
from aggverify.codes import Symptom
from aggverify.diagnosis.bugs.base import Bug
from aggverify.diagnosis.clues import sign

_ONCE = "clip once, after the last micro-batch and after gradients are reduced, before the step"
BUGS: tuple[Bug, ...] = (
    Bug(
        "clipped-each-micro-batch",
        "gradients are clipped after each micro-batch, and not once as a whole",
        "diffusers #721, accelerate #641",
        _ONCE,
        (sign(Symptom.CLIPPED), sign(EACH_MICRO_BATCH)),
    ),
    Bug(
        "clipped-before-ranks",
        "each rank clips its own gradient, before the ranks are synchronised",
        "accelerate #641 (clipped while gradients are not synchronised)",
        "reduce gradients over ranks first; then every rank clips the same gradient",
        (sign(Symptom.CLIPPED), sign(EACH_RANK)),
    ),
    Bug(
        "clipped-while-scaled",
        "gradients are clipped while they still have a factor, as a GradScaler's",
        "Lightning #9599",
        "scaler.unscale_(optimizer) before clip_grad_norm_, and every other factor in the loss",
        (sign(Symptom.CLIPPED), sign(SCALED)),
    ),
    Bug(
        "clip-without-effect",
        "a clip is asked for, and the update is that of the unclipped gradient",
        "clip_grad_norm_ before backward, after the step, or on parameters that are not stepped",
        "clip the gradients that the optimizer steps by, between backward and its step",
        (sign(Symptom.CLIPPED), sign(NO_EFFECT)),
    ),
    Bug(
        "clipped-by-shard",
        "each shard of the parameters is clipped by its own norm",
        "norms of sharded gradients that are not reduced over the shards",
        "add the squared norms up over the ranks that hold shards, and clip by the root",
        (sign(Symptom.CLIPPED), sign(EACH_SHARD)),
    ),
    Bug(
        "ratios-of-what-is-at-hand",
        "weights are normalised or counted, or tokens filtered, over what a part of the step has",
        "self-normalised importance sampling, masks by ratio and their counts, kl_cov, clip_cov",
        "divide by the step's counts; reduce what is compared, or compare before the step is split",
        (sign(LAYOUTS),),
    ),
    Bug(
        "ratio-times-zero",
        "an importance ratio that has overflowed is multiplied by 0",
        "masks by ratio (IcePop) and padding: inf * 0 is NaN",
        "clamp the log-ratio before exp, and select with torch.where instead of a product",
        (sign(Symptom.OVERFLOWS),),
    ),
    Bug(
        "shifted-twice",
        "labels that were shifted already are shifted once more, in each shard or pack",
        "ms-swift #10185",
        "shift once, over the whole sequence, and cut labels as the logits are cut",
        (sign("wrong label: shifted twice"),),
    ),
    Bug(
        "shifted-over-an-edge",
        "labels are shifted over the edge between two sequences of a pack, or of two shards",
        "torchtune #2613, verl #6475 (at the edge of a pack)",
        "shift each sequence by itself; the last position of one has no label",
        (sign("wrong label: over an edge"),),
    ),
    Bug(
        "rolled",
        "the last position of a sequence is trained on the sequence's first token",
        "torch.roll(input_ids, -1) under a mask that is not shifted",
        "roll labels with their -100, not ids; the last position of a sequence has no label",
        (sign("wrong label: rolled"),),
    ),
    Bug(
        "not-shifted",
        "each position is trained on its own token",
        "labels that a model was expected to shift, and a loss that does not",
        "compare the logit at p with the label at p + 1",
        (sign("wrong label: not shifted"),),
    ),
    Bug(
        "trained-on-the-prompt",
        "positions of the prompt are trained on",
        "label masks of chat turns that begin too early",
        "give every token of a prompt the label -100",
        (sign("wrong label: prompt"),),
    ),
    Bug(
        "mean-per-micro-batch",
        "a term is a mean of each micro-batch's own mean, and not one over the step",
        "Automodel #3359; by design where MoE losses balance each micro-batch",
        "declare it with --terms, or divide by the step's count",
        (sign(Symptom.MEANT),),
    ),
)
