"""What is asked of a person where neither names nor calls show it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aggverify.conventions.adapter_claims import claims
from aggverify.conventions.adapter_draft import Adapter
from aggverify.conventions.adapter_forms import CallHints
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.parameters import role
from aggverify.engines import formulas
from aggverify.errors import InputError
from aggverify.execution.subject import Subject
from aggverify.oracles import MODES
from aggverify.scaffold import variants
from aggverify.scaffold.probing import Probed


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to be declared; ``choices`` are all there are, or none where anything may be."""

    what: str
    text: str
    choices: tuple[str, ...] = ()


Ask = Callable[[Question], str | None]
"""Puts a question to the person; None without an answer."""


def no_answers(question: Question) -> None:
    """Where no person can be asked."""


def of_parameters(offer: Offer, known: CallHints, ask: Ask) -> CallHints:
    """Add what the person declares of parameters whose names show nothing."""
    answered = dict(known.arguments)
    for parameter in Adapter(offer, known).unknown:
        text = (
            f"{offer.name} takes {parameter}: what is it? A Python expression of losses and batch, "
            f"as batch.num_tokens"
        )
        answer = ask(Question(parameter, text))
        if answer:
            answered[parameter] = expression(parameter, answer)
    return replace(known, arguments=answered)


_STEP, _MICRO_BATCH = "step", "micro-batch"


def of_counts(offer: Offer, probed: Probed, others: Mapping[str, Probed], ask: Ask) -> CallHints:
    """Add what the person declares of counts that may be the step's or the micro-batch's."""
    answered = dict(probed.known.arguments)
    for parameter, other in others.items():
        text = in_doubt(offer, parameter, probed, other)
        answer = ask(Question(parameter, text, (_STEP, _MICRO_BATCH)))
        if answer:
            whose = probed if answer == _STEP else other
            answered[parameter] = Adapter(offer, whose.known).expression(parameter)
    return replace(probed.known, arguments=answered)


def in_doubt(offer: Offer, parameter: str, probed: Probed, other: Probed) -> str:
    """Return the two readings of a count, and what the function computes with each."""
    what = role(parameter)
    assert what is not None
    of_step, of_part = f"{what.value} ({_shows(probed)})", variants.OF_THE_MICRO_BATCH[what][1]
    return f"{parameter}: {of_step}, or {of_part} ({_shows(other)})?"


def _shows(probed: Probed) -> str:
    if probed.mode is None:
        return "no known mode" if probed.ran else "it fails"
    right = (
        f"right under {', '.join(probed.engines)}" if probed.engines else "wrong in some layouts"
    )
    return f"{probed.mode}, {right}"


def expression(parameter: str, text: str) -> str:
    """Return the text if it is one Python expression; raises InputError."""
    try:
        ast.parse(text, mode="eval")
        if "\n" not in text:
            return text
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise InputError(f"{parameter}={text:.200}: not a Python expression in one line")


def of_claims(offer: Offer, probed: Probed, ask: Ask) -> CallHints:
    """Add mode and engine, as far as they are known or given; what is not is left to fill in."""
    if probed.among:
        answer = ask(_among(offer, probed.among))
        probed = probed.among[answer] if answer else probed
    known, left = probed.known, []
    claimed = claims(Adapter(offer, known))
    unseen = [*_unconfirmed(claimed, probed)]
    if "mode" in unseen and (mode := ask(_mode(offer.name))):
        known = replace(known, mode=mode)
        unseen.remove("mode")
    if "engine" in unseen and (engine := ask(_engine(offer.name, probed.engines))):
        known = replace(known, engine=engine)
        unseen.remove("engine")
    left += unseen
    if "mode" not in claimed:
        mode = probed.mode or (None if probed.among else ask(_mode(offer.name)))
        divisor = probed.divisor if known.divisor is None else known.divisor
        seen = known.found | {"mode"} if probed.mode else known.found
        known = replace(known, mode=mode or None, divisor=divisor, found=seen)
        left += [] if mode else ["mode"]
    if "engine" not in claimed and probed.engines and "sum" not in probed.engines:
        engine = ask(_engine(offer.name, probed.engines))
        known = replace(known, engine=engine or None)
        left += [] if engine else ["engine"]
    return replace(known, left=tuple(left))


def _unconfirmed(claimed: Mapping[str, Any], probed: Probed) -> Iterator[str]:
    """Yield which of mode and engine only names show: neither the person nor a call confirms it."""
    if "mode" in claimed and probed.known.mode is None and probed.mode != claimed["mode"]:
        yield "mode"
    engine = claimed.get("engine")
    if engine is not None and probed.known.engine is None and engine not in probed.engines:
        yield "engine"


def _mode(function: str) -> Question:
    """Return the question which mode it implements."""
    return Question("mode", f"which mode does {function} implement?", tuple(MODES))


def _among(offer: Offer, among: Mapping[str, Probed]) -> Question:
    """Return that question where each mode also means other values of its parameters."""
    lines = [f"which mode does {offer.name} implement?"]
    for mode, probed in among.items():
        adapter = Adapter(offer, probed.known)
        answered = ", ".join(f"{p}={adapter.expression(p)}" for p in adapter.given)
        lines.append(f"  {mode}: {offer.name}({answered})")
    return Question("mode", "\n".join(lines), tuple(among))


def _engine(function: str, right: Sequence[str]) -> Question:
    """Return the question for the engine, asked where it is not right under the usual one."""
    lines = [f"what does your trainer do? ({function} would be right under {', '.join(right)})"]
    lines += [f"  {e.name}: {e.does}" for e in formulas()]
    return Question("engine", "\n".join(lines), tuple(e.name for e in formulas()))


def of_subject(found: Sequence[Subject], ask: Ask) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Options of a function that needs no adapter, and those that are left to fill in."""
    first, left = found[0], []
    options: dict[str, Any] = {}
    modes = [s.mode for s in found if s.mode is not None]
    if not modes and first.oracle is None and not first.nonlinear:
        answer = ask(_mode(first.function))
        modes = [answer] if answer else []
        left += [] if answer else ["modes"]
    if modes:
        options["modes"] = modes
    divisors = [s.divisor for s in found if s.divisor is not None]
    if divisors:
        options["divisor"] = divisors[0]
    if first.engine_in_question:
        answer = ask(_engine(first.function, (first.engine.name,)))
        left += [] if answer else ["engine"]
        options |= {"engine": answer} if answer else {}
    elif first.found.engine_declared:
        options["engine"] = first.engine.name
    return options, tuple(left)
