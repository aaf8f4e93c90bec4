"""Bugs of the loss mask, of who gets which weight, and steps that do not get done."""

from __future__ import annotations

from aggverify.codes import Symptom
from aggverify.diagnosis.behind import Poison
from aggverify.diagnosis.bugs.base import Bug
from aggverify.diagnosis.clues import Broken, Error, Leaks, sign

BUGS: tuple[Bug, ...] = (
    Bug(
        "mask-not-applied",
        "the mask is never applied: values behind it are part of the sum",
        "one mode without its mask",
        "select with torch.where(mask.bool(), x, 0) before summing",
        (sign("mask-not-applied"),),
    ),
    Bug(
        "mask-not-applied",
        "the mask is never applied: values behind it are part of the sum",
        "one mode without its mask",
        "select with torch.where(mask.bool(), x, 0) before summing",
        (Leaks(by=(Poison.FINITE,), weighed=True),),
    ),
    Bug(
        "mask-shifted",
        "the mask is off by one token",
        "mlx-lm-lora #80",
        "shift the mask as the labels are shifted: position p predicts token p + 1",
        (sign("mask-shifted"),),
    ),
    Bug(
        "mask-on-the-result",
        "torch.where on the result only: 0 * inf in the backward of what it hides",
        "a loss that is finite with a gradient that is NaN",
        "select the inputs first, then do arithmetic on what is left",
        (Broken(forward=False, masked=True),),
    ),
    Bug(
        "mask-on-the-result",
        "torch.where on the result only: 0 * inf in the backward of what it hides",
        "a loss that is finite with a gradient that is NaN",
        "select the inputs first, then do arithmetic on what is left",
        (Leaks(),),
    ),
    Bug(
        "guard-on-the-result",
        "a division by an empty count is hidden by torch.where: its backward is 0 * inf",
        "a loss that is finite with a gradient that is NaN",
        "clamp the count before dividing: sum / count.clamp(min=1)",
        (Broken(forward=False),),
    ),
    Bug(
        "added-and-subtracted",
        "masked values are added and subtracted again: huge ones drown the rest, inf - inf is NaN",
        "a masked sum as the sum of everything less the sum of what is masked",
        "select with torch.where(mask.bool(), x, 0) before summing, and sum once",
        (Leaks(by=(Poison.FINITE,), cancels=True),),
    ),
    Bug(
        "masked-values-reported",
        "values behind the mask are part of the reported loss, though of no gradient",
        "a metric over every token, masked ones included",
        "select with torch.where(mask.bool(), x, 0) before summing what is reported",
        (Leaks(by=(Poison.FINITE,), weighed=False),),
    ),
    Bug(
        "keep-alive",
        "0 * sum(everything) is added to keep the graph alive, and 0 * inf is NaN",
        "slime, miles",
        "multiply the masked sum by 0, or select before summing",
        (Leaks(by=(Poison.OVERFLOW,), not_by=(Poison.FINITE, Poison.LARGEST)),),
    ),
    Bug(
        "multiply-by-mask",
        "values behind the mask are multiplied by 0, and 0 * NaN is NaN",
        "SkyRL #1635",
        "select with torch.where(mask.bool(), x, 0) before any arithmetic",
        (Leaks(by=(Poison.NAN,), not_by=(Poison.FINITE, Poison.OVERFLOW)),),
    ),
    Bug(
        "multiply-by-mask",
        "what is made of values behind the mask is multiplied by 0, and 0 * inf is NaN",
        "SkyRL #1635",
        "select with torch.where(mask.bool(), x, 0) before any arithmetic",
        (Leaks(by=(Poison.NAN, Poison.LARGEST), not_by=(Poison.FINITE,)),),
    ),
    Bug(
        "list-runs-out",
        "a list with fewer entries than samples is zipped with them: the rest get weight 0",
        "slime (zip without strict)",
        "zip(..., strict=True), with one entry for every sample",
        (sign("list-runs-out"),),
    ),
    Bug(
        "rows-not-covered",
        "rows that no prompt boundary covers silently get weight 0",
        "SkyRL #1718 review (uncovered rows)",
        "cover every row by a boundary, groups of one row too, and raise where one is left over",
        (sign("rows-not-covered"),),
    ),
    Bug(
        "remainder-dropped",
        "what is left over after whole groups of rows silently gets weight 0",
        "SkyRL's token_mean_legacy (M = B // micro_batch_size), AReaL #1423",
        "let the last group be smaller, or raise where rows are left over",
        (sign("remainder-dropped"),),
    ),
    Bug(
        "edge-token-dropped",
        "a slice is one token too short: an end of every response is left out of the sum",
        "mlx-lm-lora #80 ([:-1] for [1:])",
        "sum all of the response; only logits and labels are shifted against each other",
        (sign("edge-token-dropped"),),
    ),
    Bug(
        "gradients-zeroed",
        "gradients are zeroed between accumulation calls: only the last micro-batch counts",
        "SkyRL #2008",
        "zero the gradients once per optimizer step, before the first micro-batch",
        (sign("gradients-zeroed"),),
    ),
    Bug(
        "repeated-in-turn",
        "denominators repeated in turn over the tokens: repeat for repeat_interleave",
        "west #119",
        "torch.repeat_interleave(denominators, lengths)",
        (sign("in-turn"),),
    ),
    Bug(
        "sorted-by-id",
        "denominators stand in order of ids, samples as they were dealt: each gets another's",
        "slime's zip without strict, and two more order bugs among the 131 read",
        "look each sample's denominator up by its own id",
        (sign("sorted-by-id"),),
    ),
    Bug(
        "integer-buffer",
        "weights written into an integer tensor: everything below 1 becomes 0",
        "SkyRL",
        "allocate the buffer in the losses' dtype",
        (sign("integer-buffer"),),
    ),
    Bug(
        "maximum-along-an-axis",
        "torch.max(n, 1) takes the maximum along axis 1; it is no floor",
        "slime 82d3f94a3",
        "n.clamp(min=1), or torch.clamp_min(n, 1)",
        (sign(Symptom.EXCEPTION), Error("Dimension out of range", r"torch\.max\(")),
    ),
    Bug(
        "conditional-collective",
        "some ranks enter a collective that others skip",
        "a rank without tokens skips the all-reduce",
        "let every rank of the group issue every collective, with a zero if it has nothing to add",
        (sign(Symptom.BLOCKED), sign("not-all-inside")),
    ),
    Bug(
        "no-gradient",
        "a loss that is cut off from its inputs: backward fails or changes nothing",
        "what slime's and miles' keep-alive terms were added for",
        "return kept.sum() * 0 of the masked losses when there is nothing to add; never detach",
        (sign("no gradient"),),
    ),
)
