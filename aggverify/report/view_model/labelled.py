"""Who was verified and how, what was run, how sharply, and what was left out; labelled lines."""

from __future__ import annotations

import math
from collections.abc import Iterator

from aggverify.codes.state import State
from aggverify.model import CheckRecord, Margin, Tried, Verdict
from aggverify.report.annotated_source import share
from aggverify.report.formatting import counted
from aggverify.report.view_model.sentences import assumed, assumption

_FIXED_BOUND = (
    "float64: a fixed bound of 2^-30 of the gradient's largest entry, chosen and not proven "
    "(docs/bounds.md); every change beyond 2^-29 is caught"
)


def header(verdict: Verdict) -> list[tuple[str, str]]:
    """Who was verified, and how; labelled."""
    mode = verdict.oracle or verdict.mode or "none recognised: invariance only"
    if not verdict.linear:
        mode += ": no oracle, the same value and gradient in every layout"
    mode += f" (divisor {verdict.divisor:g})" if verdict.divisor is not None else ""
    default = f" [{verdict.convention}'s default]" if verdict.engine_is_default else ""
    default = " [assumed]" if verdict.engine_assumed else default
    trained = [
        ("engine", f"{verdict.engine}{default} ({verdict.engine_title})"),
        ("mode", mode + "  [identified]" * verdict.identified),
    ]
    what = None if verdict.fails_at_once else assumption(verdict)
    return [
        (
            "function" if verdict.only_called else "reducer",
            f"{verdict.target} · {verdict.function}",
        ),
        ("convention", f"{verdict.convention} ({verdict.convention_title})"),
        *([] if verdict.only_called else trained),
        *([("against", verdict.against)] if verdict.against else []),
        *([("assumed", what.removeprefix("assumed "))] if what else []),
        *(("assumed", each) for each in assumed(verdict)),
        *([("sandbox", verdict.sandbox)] if verdict.sandbox else []),
        *([("incomplete", f"{verdict.incomplete}")] if verdict.incomplete else []),
    ]


def state(check: CheckRecord) -> str:
    """Return the state of a check, and why it has it."""
    words = state_name(check.state) + (f": {check.reason}" if check.reason else "")
    return words + (f" ({check.refused})" if check.refused else "")


def state_name(state: State) -> str:
    """As people read it; documents keep the name that they have."""
    return "not applicable" if state is State.LEFT_OUT else str(state)


_COUNTED = (State.FAILED, State.HAZARD, State.WAIVED, State.REFUSED, State.NOT_JUDGED)


def counts(verdict: Verdict) -> str:
    """Return checks by state, and steps."""
    states = [check.state for check in verdict.checks]
    parts = [f"{counted(states.count(State.OK), 'check')} passed"]
    parts += [f"{states.count(s)} {s}" for s in _COUNTED if s in states]
    idle = states.count(State.LEFT_OUT) + states.count(State.NOT_CLAIMED)
    parts += [f"{idle} not applicable"] * bool(idle)
    return f"{', '.join(parts)} · {verdict.executed:,} steps, seed {verdict.seed}"


_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def reach(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the layouts tried, the smallest factor that is caught, and what is not tested."""
    t, lines = verdict.tried, []
    if verdict.executed and not verdict.only_called:
        sizes = f"dp <= {t.dp_size}, cp <= {t.cp_size}"
        sizes = f"dp, cp <= {t.dp_size}" if t.dp_size == t.cp_size else sizes
        ranks = max(t.virtual_ranks, *(int(w) for w, n in verdict.worlds.items() if n))
        sizes += f", {counted(ranks, 'rank')}, {counted(t.micro_batches, 'micro-batch')}"
        dtypes = " ".join(_SHORT.get(dtype, dtype) for dtype in t.dtypes)
        lines.append(("layouts", f"{sizes} · {dtypes}"))
    caught = [
        f"{m.smallest_caught:.1g} ({_SHORT.get(m.dtype, m.dtype)})"
        for m in verdict.margins
        if not math.isinf(m.smallest_caught)
    ]
    lines += [("catches", f"a factor off by {', '.join(caught)}")] if caught else []
    fixed = (*verdict.without, *verdict.never_claimed)
    if left := [feature for feature in verdict.not_claimed if feature not in fixed]:
        lines.append(("not tested", f"{', '.join(left)} (--claim NAME)"))
    return lines


def inventory(verdict: Verdict) -> list[tuple[str, str]]:
    """Return what was done apart from the checks' own lines, how sharply, and what was left out.

    Labelled.
    """
    worlds = ", ".join(f"{n} on {w}" for w, n in verdict.worlds.items() if n)
    steps = f"{counted(verdict.executed, 'step')} ({worlds} ranks), seed {verdict.seed}"
    lines = [("established", c.established) for c in verdict.checks if c.established]
    lines.append(("executed", steps))
    if verdict.executed and not verdict.only_called:
        lines.append(("tried", "; ".join(tried(verdict.tried))))
    sharded, of = share(verdict.covered)
    if of:
        on = f"{sharded} of {of} lines and outcomes of conditions on several ranks"
        lines.append(("code", on))
    if verdict.call_milliseconds is not None:
        lines.append(("slow", f"about {verdict.call_milliseconds} ms a call, by the clock"))
    lines += [("margin", text) for m in verdict.margins for text in margin(m)]
    if not verdict.linear:
        lines.append(("margin", _FIXED_BOUND))
    lines += [("warning", f"{w.code} {w.title}: {w.detail}") for w in verdict.loud]
    if quiet := [f"{w.title} ({w.code}: {w.detail})" for w in verdict.warnings if w.quiet]:
        lines.append(("as usual", "; ".join(quiet)))
    if verdict.computes_in != "float64":
        computes = f"the reducer computes in {verdict.computes_in} whatever its input"
        lines.append(("note", computes))
    lines += [("note", note) for note in verdict.notes]
    for w in verdict.waivers:
        until = f" until {w.expires}" if w.expires else ""
        by = f" ({w.owner}{until})" if w.owner else until
        over = " no more" if w.expired else ""
        found = counted(w.findings, "finding")
        lines.append(("waived", f"{w.what} waives {found}{over}: {w.reason}{by}"))
        if w.ambiguous:
            which = " or ".join(dict.fromkeys(w.ambiguous))
            lines.append(("waived", f"{w.what} is of an older version and ambiguous: {which}"))
    lines += [("refused", f"{r.what}: '{r.words}'") for r in verdict.refused]
    for p in verdict.policy:
        how = "declared" if p.declared else "default"
        lines.append(("policy", f"{p.question} = {p.reading}  [{how}]  {p.asks}"))
    for feature, reason in verdict.not_claimed.items():
        fixed = feature in (*verdict.without, *verdict.never_claimed)
        how = "" if fixed else f"  (--claim {feature})"
        lines.append(("not claimed", f"{feature}: {reason}{how}"))
    return lines


def tried(t: Tried) -> Iterator[str]:
    """Yield the largest of everything, and each dtype on which layouts."""
    sharded = f" ({t.sharded_response:,} sharded)" if t.sharded_response else ""
    yield f"up to {t.response:,} tokens a response{sharded}, {t.prompt:,} a prompt"
    yield f"{t.step_tokens:,} tokens and {t.step_samples:,} samples a step"
    yield f"{t.micro_batch_samples:,} samples a micro-batch, {t.micro_batches:,} micro-batches"
    if t.virtual_ranks:
        yield f"up to {t.virtual_ranks} ranks one after another, which talk to none"
    yield f"dp {t.dp_size}, cp {t.cp_size}, ids up to {t.identifier:,}"
    by_kinds: dict[tuple[str, ...], list[str]] = {}
    for dtype, kinds in t.dtypes.items():
        by_kinds.setdefault(kinds, []).append(dtype)
    for kinds, dtypes in by_kinds.items():
        yield f"{', '.join(dtypes)} on {', '.join(kinds)}"


def margin(m: Margin) -> Iterator[str]:
    """How close right results came to their bound, and what would have been caught."""
    caught = f"every factor further from 1 than {m.smallest_caught:.1g} is caught"
    if math.isinf(m.smallest_caught):
        caught = "the bound is vacuous: no factor is caught"
    needed = m.worst_error_over_bound
    how = f"within {needed:.2f} of their bound"
    if needed > 1:
        how = f"need {needed:.3g} times their bound"
    yield f"{m.dtype}: weights {how}; {caught}"
    loss = m.reported_loss
    if not loss.dense_steps:
        return
    dense = counted(loss.dense_steps, "dense step")
    beyond = []
    if not math.isinf(loss.smallest_caught_alone):  # one was tried
        beyond.append(f"{loss.smallest_caught_alone:.1g} with one loss alone")
    if not math.isinf(loss.smallest_caught_dense):
        vacuous = f", vacuous on {loss.vacuous_steps}" if loss.vacuous_steps else ""
        beyond.append(f"{loss.smallest_caught_dense:.1g} at best on {dense}{vacuous}")
    caught = f"beyond {', '.join(beyond)}" if beyond else f"no factor is caught on {dense}"
    yield f"{m.dtype}, reported loss: {caught}"
