"""Signs that are no closed form: which tokens have a weight at all, and roundings of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from aggverify.diagnosis.alignment import filled_up, sorted_by_id, unsorted_wrongly
from aggverify.diagnosis.decay import decay
from aggverify.diagnosis.experts import experts_off
from aggverify.diagnosis.masked import made_of_the_mask
from aggverify.diagnosis.observation import Array, ObservedSign, WeightObservation, close
from aggverify.diagnosis.terms import TOKENS, Term
from aggverify.steps.layouts import owned_pieces


def shown_by_weights(
    observations: Sequence[WeightObservation], *, masked: bool = False
) -> ObservedSign | None:
    """Return the first sign that is seen in every observation that can show it.

    ``masked``: of those that are about masked tokens having a weight.
    """
    usable = [o for o in observations if o.expected is not None]
    if not usable:
        return None
    for recogniser in _OF_THE_MASK if masked else _RECOGNISERS:
        found = recogniser(usable)
        if found is not None:
            return found
    return None


def _dropped(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Find unmasked tokens of weight 0, all others having the right one."""
    if not any((o.observed[o.mask] == 0).any() for o in observations):
        return None
    if any(not close(o.observed, np.where(o.observed != 0, o.exact, 0)) for o in observations):
        return None
    for name, sentence, foretold in _DROPS:
        if all((_is_dropped(o) == (foretold(o) & o.mask)).all() for o in observations):
            return ObservedSign(name, sentence)
    if all(_whole_samples(o) for o in observations):
        return ObservedSign(
            "samples-dropped", "some samples have weight 0 and are silently left out"
        )
    return None


def _is_dropped(o: WeightObservation) -> npt.NDArray[np.bool_]:
    return np.asarray(o.mask & (o.observed == 0), dtype=bool)


def _whole_samples(o: WeightObservation) -> bool:
    sample = o.tokens.sample
    dropped = _is_dropped(o)
    count = np.bincount(sample[o.mask])
    left_out = np.bincount(sample[dropped], minlength=len(count))
    return bool(((left_out == 0) | (left_out == count)).all())


def _integer_weights(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Weights cut to whole numbers: 1 stays, everything below becomes 0."""
    if any(not close(o.observed, np.trunc(o.exact)) for o in observations):
        return None
    shown = any(o.exact.max(initial=0) >= 1 for o in observations)
    lost = any(((o.exact > 0) & (o.exact < 1)).any() for o in observations)
    if not (shown and lost):
        return None
    return ObservedSign("integer-buffer", "weights are cut to whole numbers: all below 1 become 0")


def _zigzag(o: WeightObservation) -> Iterator[tuple[bool, bool, Array]]:
    """Per sample and CP rank: (first chunk empty, second chunk empty, flat tokens)."""
    step, layout = o.case.step, o.case.layout
    everyone = tuple(range(len(step.samples)))
    for c in range(layout.cp_size):
        for i, pieces in zip(everyone, owned_pieces(step, everyone, layout, c), strict=True):
            s = step.samples[i]
            q = -(-s.total_length // (2 * layout.cp_size))
            flat = np.concatenate([np.arange(a, b) for a, b in pieces] or [np.arange(0)])
            second = (flat + s.prompt_length - 1) // q >= layout.cp_size
            yield bool(second.all()), bool((~second).all()), flat + step.offsets[i]


def _second_chunks(o: WeightObservation) -> npt.NDArray[np.bool_]:
    """Tokens whose logit lies in the second half of its sample: every rank's second chunk."""
    out = np.zeros(len(o.mask), dtype=bool)
    if o.case.layout.cp_size == 1 or o.case.layout.cp_kind != "zigzag":
        return out
    size = o.case.layout.cp_size
    start = 0
    for s in o.case.step.samples:
        q = -(-s.total_length // (2 * size))
        logits = np.arange(s.response_length) + s.prompt_length - 1
        out[start : start + s.response_length] = logits // q >= size
        start += s.response_length
    return out


def _lonely_chunks(o: WeightObservation) -> npt.NDArray[np.bool_]:
    """Tokens of a rank that has response tokens in one of its two chunks only."""
    out = np.zeros(len(o.mask), dtype=bool)
    if o.case.layout.cp_size == 1 or o.case.layout.cp_kind != "zigzag":
        return out
    for first_empty, second_empty, flat in _zigzag(o):
        if first_empty or second_empty:
            out[flat.astype(np.int64)] = True
    return out


def _all_but_the_last(o: WeightObservation) -> npt.NDArray[np.bool_]:
    """Tokens of every micro-batch but the last of their rank."""
    last = {i for rank in o.case.layout.micro_batches for i in rank[-1]}
    return np.array([int(s) not in last for s in o.tokens.sample], dtype=bool)


def _edge(index: int, *, shards: bool) -> Callable[[WeightObservation], npt.NDArray[np.bool_]]:
    """Take the first or last token of every sample, or of each context-parallel rank's part."""

    def foretold(o: WeightObservation) -> npt.NDArray[np.bool_]:
        step, layout = o.case.step, o.case.layout
        out = np.zeros(len(o.mask), dtype=bool)
        if not shards or layout.cp_size == 1 or layout.cp_kind == "gathered":
            for start, sample in zip(step.offsets, step.samples, strict=True):
                out[range(start, start + sample.response_length)[index]] = True
            return out
        everyone = tuple(range(len(step.samples)))
        for c in range(layout.cp_size):
            pieces = owned_pieces(step, everyone, layout, c)
            for start, parts in zip(step.offsets, pieces, strict=True):
                owned = [t for a, b in parts for t in range(start + a, start + b)]
                if owned:
                    out[owned[index]] = True
        return out

    return foretold


_DROPS: tuple[tuple[str, str, Callable[[WeightObservation], npt.NDArray[np.bool_]]], ...] = (
    ("chunk-dropped", "the second chunk of every zigzag shard gets weight 0", _second_chunks),
    (
        "chunk-dropped",
        "a zigzag shard gets weight 0 when one of its two chunks holds no response token",
        _lonely_chunks,
    ),
    (
        "gradients-zeroed",
        "only the last micro-batch of each rank has any weight",
        _all_but_the_last,
    ),
    *(
        (
            "edge-token-dropped",
            f"the {words} token of every {'local piece' if shards else 'response'} gets weight 0",
            _edge(index, shards=shards),
        )
        for words, index in (("last", -1), ("first", 0))
        for shards in (False, True)
    ),
)


def _epsilon(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """One and the same small number added to the count of a unit."""
    for unit in ("sample", "rollout", "prompt group", ""):
        found: list[float] = []
        for o in observations:
            count = o.tokens.values(Term(TOKENS, unit))
            with np.errstate(divide="ignore", invalid="ignore"):
                found += (count * (o.exact[o.mask] / o.observed[o.mask] - 1)).tolist()
        values = np.array(found)
        if not values.size or not np.isfinite(values).all():
            continue
        size = float(np.median(values))
        if 1e-14 < size < 1e-2 and np.ptp(values) <= 1e-3 * size:
            return ObservedSign(
                "epsilon-inside", f"{size:.3g} is added to the count of the {unit or 'step'}"
            )
    return None


def _rounded_count(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Return the sign of counts that are right up to 256 and rounded to 8 bits beyond.

    In float16 it is 11 bits beyond 2048; a count that stalls at either number has it too.
    """
    for name, bits in (("bfloat16", 8), ("float16", 11)):
        for unit in ("sample", "rollout", "prompt group", ""):
            pairs = [_counts(o, unit) for o in observations]
            ways = (
                (f"is rounded to {name}", [_to_bits(true, bits) for true, _ in pairs]),
                (
                    f"stalls at {2**bits} in {name}",
                    [np.minimum(true, 2**bits) for true, _ in pairs],
                ),
            )
            for words, kept in ways:
                both = list(zip(pairs, kept, strict=True))
                same = all(close(used, r) for (_, used), r in both)
                if same and any((r != true).any() for (true, _), r in both):
                    return ObservedSign(
                        "rounded-count", f"the count of the {unit or 'step'} {words}"
                    )
    return None


_WIDTHS = tuple((bits, signed) for bits in (8, 16, 32) for signed in (True, False))


def _wrapped_count(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Return the sign of counts that begin again beyond the largest integer of a type."""
    for bits, signed in _WIDTHS:
        for unit in ("sample", "rollout", "prompt group", ""):
            pairs = [_counts(o, unit) for o in observations]
            low = 2 ** (bits - 1) if signed else 0
            wrapped = [(true + low) % 2**bits - low for true, _ in pairs]
            if not any((w != true).any() for (true, _), w in zip(pairs, wrapped, strict=True)):
                continue
            for floor in (-np.inf, 1.0):
                used = (np.maximum(w, floor) for w in wrapped)
                if all(close(u, w) for (_, u), w in zip(pairs, used, strict=True)):
                    kind = f"{'' if signed else 'u'}int{bits}"
                    return ObservedSign(
                        "wrapped-count", f"the count of the {unit or 'step'} wraps in {kind}"
                    )
    return None


def _counts(o: WeightObservation, unit: str) -> tuple[Array, Array]:
    true = o.tokens.values(Term(TOKENS, unit))
    with np.errstate(divide="ignore", invalid="ignore"):
        return true, true * o.exact[o.mask] / o.observed[o.mask]


def _to_bits(count: Array, bits: int) -> Array:
    mantissa, exponent = np.frexp(count)
    return np.asarray(np.ldexp(np.rint(mantissa * 2**bits), exponent - bits), dtype=np.float64)


def _in_turn(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """On one rank, token t has the weight of sample ``t mod samples``."""
    differs = False
    for o in observations:
        if not o.case.layout.is_trivial:
            continue
        samples = len(o.case.step.samples)
        token = np.arange(len(o.mask))
        first = {int(s): w for s, w in zip(o.tokens.sample[o.mask], o.exact[o.mask], strict=True)}
        if len(first) < samples:
            continue  # a fully masked sample shows no weight
        turned = np.where(o.mask, np.array([first[int(t) % samples] for t in token]), 0)
        if not close(o.observed, turned):
            return None
        differs |= not close(turned, o.exact)
    if not differs:
        return None
    return ObservedSign(
        "in-turn", "token t gets the denominator of sample t mod n: repeat, not interleave"
    )


_OF_THE_MASK = (made_of_the_mask,)
_RECOGNISERS: tuple[Callable[[Sequence[WeightObservation]], ObservedSign | None], ...] = (
    _integer_weights,
    experts_off,
    made_of_the_mask,
    _dropped,
    _epsilon,
    _rounded_count,
    _wrapped_count,
    _in_turn,
    decay,
    sorted_by_id,
    unsorted_wrongly,
    filled_up,
)
