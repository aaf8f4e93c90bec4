"""Bugs that really happened, with the trace each leaves in the weights. Data, one entry a bug."""

from __future__ import annotations

from dataclasses import dataclass

from aggverify.diagnosis.factors import Factor
from aggverify.diagnosis.forms import ClosedForm, Term


@dataclass(frozen=True, slots=True)
class Bug:
    """A historic bug: what is computed, where it was seen, how it was mended.

    It is recognised by finding code, by a common factor, or by the form's inner count (what, unit
    and places); empty fields match anything.
    """

    name: str
    sentence: str
    seen: str
    fix: str
    codes: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    inner: tuple[str, str, tuple[str, ...]] | None = None
    exponents: tuple[int, int, int] | None = None
    """Of dp_size, cp_size and num_microbatches."""

    def explains(self, code: str, form: ClosedForm | None, factor: Factor | None) -> bool:
        """Whether the trace is this bug's."""
        if self.codes and code not in self.codes:
            return False
        if self.factors and (factor is None or factor.name not in self.factors):
            return False
        if self.inner is None:
            return bool(self.codes or self.factors)
        if form is None or form.inner is None or form.outer is not None:
            return False
        return _key(form.inner) == self.inner and self.exponents in (None, form.exponents)


def _key(term: Term) -> tuple[str, str, tuple[str, ...]]:
    return term.what, term.unit, term.places


_TOKENS = "unmasked tokens"
_CELL_FIX = "divide every micro-batch's sum by the step's token count, all-reduced before the split"

BUGS: tuple[Bug, ...] = (
    Bug(
        "mean-over-micro-batches",
        "the mean over micro-batches of each one's own token mean",
        "verl #5625, SkyRL before #1296, transformers #34191",
        _CELL_FIX,
        inner=(_TOKENS, "", ("micro-batch",)),
        exponents=(0, 0, -1),
    ),
    Bug(
        "mean-over-cells",
        "the mean over (rank, micro-batch) of each one's own token mean",
        "verl #5625, SkyRL before #1296 (its token_mean_legacy)",
        _CELL_FIX,
        inner=(_TOKENS, "", ("dp rank", "micro-batch")),
        exponents=(-1, 0, -1),
    ),
    Bug(
        "mean-over-dp-ranks",
        "the mean over data-parallel ranks of each rank's own token mean",
        "prime-rl #2358",
        "all-reduce the token count over the data-parallel group before dividing",
        inner=(_TOKENS, "", ("dp rank",)),
        exponents=(-1, 0, 0),
    ),
    Bug(
        "mean-over-cp-shards",
        "the mean over CP shards of each shard's own token mean",
        "Megatron-LM #7513",
        "take the denominator from the full mask, or all-reduce it over the CP group",
        inner=(_TOKENS, "", ("cp rank",)),
        exponents=(0, -1, 0),
    ),
    Bug(
        "sum-of-cp-shard-means",
        "the sum over CP shards of each shard's own token mean of the sample",
        "slime e8d3f58f3's family; Megatron-LM #7513",
        "divide every shard's sum by the full mask's count, not by the shard's",
        inner=(_TOKENS, "sample", ("cp rank",)),
    ),
    Bug(
        "cp-counted-twice",
        "the context-parallel size is multiplied in once too often",
        "SkyRL #1420 (fixed in #1751), slime #1748",
        "drop the reducer's own factor of cp_size: the engine has it already",
        codes=("AGV201", "AGV204"),
        factors=("cp_size",),
    ),
    Bug(
        "cp-scaling-missing",
        "the context-parallel size is divided out once too often",
        "slime #990",
        "multiply by cp_size where the engine averages over context-parallel ranks",
        codes=("AGV201", "AGV204"),
        factors=("1/cp_size",),
    ),
    Bug(
        "dp-scaling-missing",
        "the engine's mean over data-parallel ranks is not undone",
        "Arctic #119",
        "multiply by the number of ranks the engine averages over",
        codes=("AGV203", "AGV204"),
        factors=("1/dp_size",),
    ),
    Bug(
        "dp-counted-twice",
        "the data-parallel size is multiplied in although the engine sums",
        "tmax #9",
        "drop the reducer's own factor of dp_size",
        codes=("AGV203", "AGV204"),
        factors=("dp_size",),
    ),
    Bug(
        "accumulation-missing",
        "micro-batches add up where they should be averaged",
        "LLaMA-Factory #7443",
        "divide by the number of micro-batches, or by a count over all of them",
        codes=("AGV202", "AGV204"),
        factors=("num_microbatches",),
    ),
    Bug(
        "accumulation-twice",
        "the number of micro-batches is divided out once too often",
        "ms-swift #10117, AReaL #1273",
        "drop the division by the number of micro-batches: the normaliser is global already",
        codes=("AGV202", "AGV204"),
        factors=("1/num_microbatches",),
    ),
    Bug(
        "multiply-by-mask",
        "values behind the mask are multiplied by 0, and 0 * NaN is NaN",
        "SkyRL #1635",
        "select with torch.where(mask.bool(), x, 0) before any arithmetic",
        codes=("AGV121", "AGV122"),
    ),
)


def known_bug(code: str, form: ClosedForm | None, factor: Factor | None) -> Bug | None:
    """The first bug whose trace fits."""
    return next((bug for bug in BUGS if bug.explains(code, form, factor)), None)
