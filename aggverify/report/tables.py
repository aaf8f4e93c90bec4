"""Weights and scalars of every mode side by side, as plain lines."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from aggverify import oracles
from aggverify.execution.installed import installed_modes
from aggverify.oracles import (
    DEFAULT_POLICY,
    FAMILIES,
    LEGACY,
    MODES,
    OBJECTIVES,
    PAIRED,
    Mode,
    Objective,
    Policy,
    Step,
    mode,
    objective,
)
from aggverify.oracles.policy import QUESTIONS, READINGS
from aggverify.steps.notation import format_step

DIGITS = 50
LONGEST = 60
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


def weights_table(
    step: Step,
    divisor: float,
    policy: Policy = DEFAULT_POLICY,
    modes: Sequence[str] | None = None,
) -> list[str]:
    """One line per sample: its mask and the weight of its unmasked tokens in every mode."""
    modes = tuple(MODES) if modes is None else modes
    rows = [["sample", "prompt group", "rollout", "mask", *modes]]
    per_mode = [_sample_weights(name, step, divisor, policy) for name in modes]
    for i, sample in enumerate(step.samples):
        mask = "".join("#" if bit else "." for bit in sample.loss_mask)
        weights = [_fraction(of_mode[i]) for of_mode in per_mode]
        rows.append([str(i), str(sample.group), str(sample.rollout), mask, *weights])
    divided = [name for name in modes if mode(name).needs_divisor]
    lines = [f"step      {format_step(step)}"]
    lines += [f"divisor   {divisor:g} ({', '.join(divided)})"] if divided else []
    other = policy.describe(_declared(policy))
    lines += [f"policy    {line}" for line in other]
    return [*lines, *_aligned(rows)]


def scalars_table(
    step: Step,
    losses: Sequence[float],
    divisor: float,
    digits: int = DIGITS,
    policy: Policy = DEFAULT_POLICY,
    modes: Sequence[str] | None = None,
) -> list[str]:
    """One line per mode: the exact scalar as a fraction and as a decimal by mpmath."""
    modes = tuple(MODES) if modes is None else modes
    rows = [["mode", "scalar", f"to {digits} digits"]]
    values = oracles.scalars(modes, step, losses, divisor=divisor, policy=policy)
    for name, value in zip(modes, values.values(), strict=True):
        given = divisor if mode(name).needs_divisor else None
        decimal = oracles.scalar_mp(name, step, losses, digits=digits, divisor=given, policy=policy)
        rows.append([name, _fraction(value), decimal_text(decimal, digits)])
    return _aligned(rows)


def objective_table(
    known: Objective, step: Step, inputs: Sequence[float], policy: Policy, digits: int
) -> list[str]:
    """Return the value, and one line per sample: its mask and the weight of its unmasked tokens."""
    from mpmath import mp

    value, flat = oracles.value_and_weights(known, step, inputs, policy=policy)
    with mp.workdps(digits):
        decimal = decimal_text(mp.mpf(value.numerator) / value.denominator, digits)
    rows = [["sample", "prompt group", "rollout", "mask", "weight"]]
    for i, (sample, start) in enumerate(zip(step.samples, step.offsets, strict=True)):
        own = flat[start : start + sample.response_length]
        mask = "".join("#" if bit else "." for bit in sample.loss_mask)
        weight = repr(float(next(filter(None, own), 0)))
        rows.append([str(i), str(sample.group), str(sample.rollout), mask, weight])
    return [f"mode      {known.name}", f"value     {decimal}", *_aligned(rows)]


def _fraction(value: Fraction) -> str:
    """Return the fraction; rounded where it is too long to read (powers that are no rationals)."""
    text = str(value)
    return text if len(text) <= LONGEST else f"{float(value)!r}..."


def decimal_text(value: object, digits: int) -> str:
    """Return an mpmath number to that many digits."""
    from mpmath import mp

    with mp.workdps(digits):
        return str(mp.nstr(value, digits))


_LEGACY = (
    LEGACY.name,
    f"    {mode(f'{LEGACY.name}(2)').formula.replace('2 samples', 'B samples')}",
    "    needs --micro-batch-size B, is another mode for every B, and judged on such micro-batches",
    *(f"    {framework}: {', '.join(names)}" for framework, names in LEGACY.names.items()),
)
_NONLINEAR = (
    "nonlinear",
    "  no weights: any other objective of the per-token inputs, for example GMPO (arXiv",
    "  2507.20673); --mode nonlinear checks that value and gradient are the same in",
    "  every layout, in float64 with a fixed bound (docs/bounds.md)",
)


def modes_text(names: Sequence[str] = ()) -> list[str]:
    """Modes of these names; or every one, with the readings of every question of the policy.

    Each with formula, source, policy, the names frameworks give it, and a worked ragged example.
    """
    installed_modes()
    lines: list[str] = []
    if names:
        from aggverify.run.planning.naming import canonical

        found = list(dict.fromkeys(canonical(name)[0] for name in names))
        for name in found:
            lines += [*_mode_lines(name), ""]
        linear = [name for name in found if objective(name) is None and name not in PAIRED]
        return [*lines, *(_example(linear) if linear else [])]
    for name in (*MODES, *FAMILIES, *PAIRED, *OBJECTIVES):
        lines += [*_mode_lines(name), ""]
    lines += [*_NONLINEAR, "", *_LEGACY, ""]
    return [*lines, *_example(), "", *_policy_lines()]


def _example(modes: Sequence[str] | None = None) -> list[str]:
    """Weights and scalars of these modes, or all, on a ragged step."""
    from aggverify.steps.notation import parse_step

    step = parse_step("2/11+3/111 4/1111; 1/1 5/110")
    losses = [float(t + 1) for t in range(step.num_response_tokens)]
    title = ["A ragged example: losses 1, 2, 3 ... in order", ""]
    weights = weights_table(step, 16.0, modes=modes)
    return [*title, *weights, "", *scalars_table(step, losses, 16.0, 20, modes=modes)]


def _mode_lines(name: str) -> list[str]:
    if (known := objective(name)) is not None:
        return _objective_lines(known, title=name)
    found = mode(name)
    title = f"{name}({'p' if name == 'length_weighted' else 'a'})" if name in FAMILIES else name
    lines = [title, f"    {found.formula}", f"    source: {found.citation}"]
    if name in FAMILIES:
        lines.append(f"    a family: {name} alone is {found.name}, and {name}(3/4) another member")
    lines += _PAIRS if found.group_size else []
    if found.needs_divisor:
        lines.append("    needs --divisor L")
    lines.append(f"    policy: {', '.join(found.asks) or 'nothing is open'}")
    listed = {f: ", ".join([*found.names.get(f, ()), *_remark(found, f)]) for f in FRAMEWORKS}
    return lines + [f"    {framework}: {text}" for framework, text in listed.items() if text]


_PAIRS = [
    "    pairs are prompt groups of two; the rollout with the smaller id is the chosen one",
    "    --group-size 2: the trainer keeps pairs whole",
]


def _objective_lines(found: Objective, title: str) -> list[str]:
    lines = [title, f"    {found.formula}", f"    source: {found.citation}"]
    if (kind := found.name.partition("(")[0]) != found.name:
        lines.append(f"    a family: {kind} alone is {kind}(1), and {kind}(0.1) another member")
    lines.append("    not linear: value and gradient on one rank, and the same in every layout")
    lines += _PAIRS if found.group_size else []
    lines.append(f"    policy: {', '.join(found.asks)}")
    return lines + [f"    {framework}: {', '.join(n)}" for framework, n in found.names.items()]


def _remark(found: Mode, framework: str) -> list[str]:
    return [found.remarks[framework]] if framework in found.remarks else []


def _policy_lines() -> list[str]:
    """Every open question with its readings, the default first."""
    rows = [["policy", "readings (the first is the default)", "question"]]
    for name, question in QUESTIONS.items():
        rows.append([name, ", ".join(READINGS.get(name, ("a number",))), question])
    return [*_aligned(rows), "Set with --policy QUESTION=READING."]


def _declared(policy: Policy) -> list[str]:
    """Questions that have another reading than the default."""
    return [q for q in QUESTIONS if getattr(policy, q) != getattr(DEFAULT_POLICY, q)]


def _sample_weights(name: str, step: Step, divisor: float, policy: Policy) -> list[Fraction]:
    """Weight of each sample's first unmasked token; 0 where there is none."""
    given = divisor if mode(name).needs_divisor else None
    flat = oracles.weights(name, step, divisor=given, policy=policy)
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
