"""Weights and scalars of every mode side by side, as plain lines."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import oracles
from aggverify.notation import format_step
from oracles import DEFAULT_POLICY, MODES, Policy, Step

DIGITS = 50
FRAMEWORKS = (
    "slime",
    "miles",
    "SkyRL",
    "verl",
    "TRL",
    "OpenRLHF",
    "NeMo-RL",
    "AReaL",
    "ROLL",
    "prime-rl",
    "Tinker",
    "Megatron-LM",
)


def weights_table(step: Step, divisor: float, policy: Policy = DEFAULT_POLICY) -> list[str]:
    """One line per sample: its mask and the weight of its unmasked tokens in every mode."""
    rows = [["sample", "prompt group", "rollout", "mask", *MODES]]
    per_mode = {name: _sample_weights(name, step, divisor, policy) for name in MODES}
    for i, sample in enumerate(step.samples):
        mask = "".join("#" if bit else "." for bit in sample.loss_mask)
        weights = [str(per_mode[name][i]) for name in MODES]
        rows.append([str(i), str(sample.group), str(sample.rollout), mask, *weights])
    return [f"step      {format_step(step)}", f"divisor   {divisor:g} (constant)", *_aligned(rows)]


def scalars_table(
    step: Step,
    losses: Sequence[float],
    divisor: float,
    digits: int = DIGITS,
    policy: Policy = DEFAULT_POLICY,
) -> list[str]:
    """One line per mode: the exact scalar as a fraction and as a decimal by mpmath."""
    rows = [["mode", "scalar", f"to {digits} digits"]]
    for name, value in oracles.scalars(
        list(MODES), step, losses, divisor=divisor, policy=policy
    ).items():
        taken = divisor if MODES[name].needs_divisor else None
        decimal = oracles.scalar_mp(name, step, losses, digits=digits, divisor=taken, policy=policy)
        rows.append([name, str(value), decimal_text(decimal, digits)])
    return _aligned(rows)


def decimal_text(value: object, digits: int) -> str:
    """An mpmath number to that many digits."""
    from mpmath import mp

    with mp.workdps(digits):
        return str(mp.nstr(value, digits))


def modes_text() -> list[str]:
    """Every mode: formula, source, the names frameworks give it; then a worked ragged example."""
    lines = []
    for mode in MODES.values():
        lines += [mode.name, f"    {mode.formula}", f"    source: {mode.citation}"]
        names = [f"{f}: {mode.names[f]}" for f in FRAMEWORKS if f in mode.names]
        lines += [f"    {name}" for name in names] + [""]
    from aggverify.notation import parse_step

    step = parse_step("2/11+3/111 4/1111; 1/1 5/110")
    losses = [float(t + 1) for t in range(step.num_response_tokens)]
    lines += ["A ragged example: losses 1, 2, 3 ... in order", ""]
    return lines + weights_table(step, 16.0) + [""] + scalars_table(step, losses, 16.0, 20)


def _sample_weights(name: str, step: Step, divisor: float, policy: Policy) -> list[Fraction]:
    """Weight of each sample's first unmasked token; 0 where there is none."""
    flat = oracles.weights(
        name, step, divisor=divisor if MODES[name].needs_divisor else None, policy=policy
    )
    return [
        next(filter(None, flat[start : start + s.response_length]), Fraction(0))
        for s, start in zip(step.samples, step.offsets, strict=True)
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
