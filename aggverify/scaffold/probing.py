"""Calling a person's function in ranks, to see what its parameters' names do not show."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aggverify.conventions.adapter_claims import claims
from aggverify.conventions.adapter_draft import Adapter
from aggverify.conventions.adapter_forms import CallHints
from aggverify.conventions.adapter_text import adapted
from aggverify.conventions.candidate_callable import Offer
from aggverify.errors import AggverifyError
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.discovery import identified
from aggverify.run.planning.engine import right_engines
from aggverify.run.planning.identify import distinguishing_cases
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import Target, origin
from aggverify.scaffold.variants import (
    fillings,
    forms,
    log_prob_readings,
    meant,
    one_a_sample,
    other_readings,
)
from aggverify.world import Pool, Template

_OFFERED = "reduce_{}"
FEW = 8
"""Ways to fill unknown parameters that are tried in every form; in the first, all are."""
_ONE_A_SAMPLE = (
    "advantages are one a sample here, so no per-token losses can be given: write an ADAPTER with "
    '"gradient_of" (docs/frameworks/adapters.md)'
)
LONGEST = 200
"""Characters of a message on what went wrong."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What calling a function showed, and what is known of it by then."""

    known: CallHints
    mode: str | None = None
    """The mode it was recognised as."""
    divisor: float | None = None
    engines: tuple[str, ...] = ()
    """Engines under which it is that mode in every layout tried, its usual one first."""
    ran: bool = False
    weights: tuple[npt.NDArray[np.float64], ...] = field(default=(), compare=False)
    """Of every step that it was called on."""
    among: Mapping[str, Probed] = field(default_factory=dict)
    """By mode, where several ways to fill parameters give several modes."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One function of a person's file, called through one adapter after the other."""

    target: Target
    offer: Offer
    pool: Pool

    def run(self, known: CallHints) -> Probed:
        """Return the form in which it runs, with the filling of unknown parameters that fits."""
        adapter = Adapter(self.offer, known)
        ways = fillings if adapter.unknown else log_prob_readings
        filled = list(ways(self.offer, known))
        if not filled:
            return Probed(known)
        trouble = ""
        for form in forms(known, several=adapter.usually_several):
            tried = self._tried(filled, form)
            if found := [p for p in tried if p.ran]:
                return self._per_token(_chosen(found, known))
            if not form.first:  # else it may be that there was nothing in front of others
                trouble = trouble or tried[0].known.trouble
            filled = filled[:FEW]
        return Probed(replace(known, trouble=trouble))

    def _per_token(self, chosen: Probed) -> Probed:
        """Return what was chosen; with what is wrong where its advantages are one a sample."""
        wanted = one_a_sample(self.offer, chosen.known)
        if wanted is None or chosen.mode is not None or Adapter(self.offer, chosen.known).unknown:
            return chosen
        [other] = self._tried([wanted], chosen.known)
        # One that takes one a token has no weights with one a row; one that takes both, the same.
        if all(map(np.allclose, chosen.weights, other.weights)):
            return chosen
        return Probed(replace(chosen.known, trouble=_ONE_A_SAMPLE))

    def others(self, chosen: Probed) -> Mapping[str, Probed]:
        """Return, by parameter, what another plausible reading of a count gives.

        Only where that is another mode, or is right in other layouts.
        """
        wanted = other_readings(self.offer, chosen.known)
        if not (wanted and chosen.ran) or Adapter(self.offer, chosen.known).unknown:
            return {}
        tried = dict(zip(wanted, self._tried([*wanted.values()], chosen.known), strict=True))
        same = chosen.mode, chosen.engines
        return {p: other for p, other in tried.items() if (other.mode, other.engines) != same}

    def _tried(self, filled: Sequence[CallHints], form: CallHints) -> list[Probed]:
        tried = [replace(known, shape=form.shape, first=form.first) for known in filled]
        with self._loaded(tried) as template:
            executor = Executor(template)
            executor.begin()
            return [self._one(executor, n, known) for n, known in enumerate(tried)]

    @contextmanager
    def _loaded(self, tried: Sequence[CallHints]) -> Iterator[Template]:
        """Give a template process that has imported an adapter for each."""
        where = self.target.path
        start = Path.cwd() if where is None else where.parent
        with tempfile.TemporaryDirectory(prefix="aggverify-new-") as name:
            folder, source = Path(name), origin(self.target)
            if where is not None and source.module is None:
                (folder / where.name).symlink_to(where)
            lines = []
            for n, known in enumerate(tried):
                text = adapted(self.offer, source, replace(known, left=()))
                (folder / f"aggverify_probe_{n}.py").write_text(text, encoding="utf-8")
                lines.append(f"from aggverify_probe_{n} import reduce as {_OFFERED.format(n)}")
            path = folder / "aggverify_probes.py"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            with opened(self.pool, {"path": str(path)}, [str(start), name]) as template:
                yield template

    def _one(self, executor: Executor, n: int, known: CallHints) -> Probed:
        """Return what is seen of one adapter; after one that runs away, others get less time."""
        done = executor.run(_subject(self.offer, known, n, {}), distinguishing_cases())
        if any(e.weights is None or not np.isfinite(e.weights).all() for e in done):
            return Probed(replace(known, trouble=_trouble(done)))
        weights = tuple(e.weights for e in done if e.weights is not None)
        claimed = claims(Adapter(self.offer, known))
        subject = _subject(self.offer, known, n, claimed)
        with suppress(AggverifyError):
            subject = identified(subject, executor)
        if subject.mode is None or subject.mode != (meant(self.offer, known) or subject.mode):
            return Probed(known, ran=True, weights=weights)
        right: tuple[str, ...] = ()
        with suppress(AggverifyError):
            right = right_engines(subject, executor)
        return Probed(known, subject.mode, subject.divisor, right, ran=True, weights=weights)


def _trouble(done: Sequence[Execution]) -> str:
    """Return the message of the first step that came to nothing, in one line."""
    failure = next((e.failure for e in done if e.failure is not None), None)
    message = "the weights are not finite" if failure is None else failure.message
    return " ".join(message.split())[:LONGEST]


def _subject(offer: Offer, known: CallHints, n: int, claimed: Mapping[str, object]) -> Subject:
    name = _OFFERED.format(n)
    text = f"aggverify_probes.py:{name}"
    without = claimed.get("without", ())
    request = Request(
        text,
        engine=known.engine if "engine" not in claimed else str(claimed["engine"]),
        without=frozenset(without if isinstance(without, list) else ()),
        max_world=4,
    )
    reduce = {"name": name, "parameters": ("losses", "batch"), "required": ("losses", "batch")}
    [subject] = subjects(request, Target(text, None, None, name), {"offers": [reduce]})
    return subject


def _chosen(found: Sequence[Probed], known: CallHints) -> Probed:
    """Return the one that is right in every layout, or else the first that is a mode at all.

    Where parameters were filled in and several modes come of it, return what these agree on, with
    one way to each mode in ``among``.
    """
    wanted = [p for p in found if p.mode is not None and known.mode in (None, p.mode)]
    best = [p for p in wanted if p.engines] or wanted
    if not best:
        return found[0] if len(found) == 1 else replace(found[-1], known=known)
    each = {p.mode: p for p in reversed(best) if p.mode is not None}
    if len(each) == 1 or not best[0].known.found:
        return best[0]
    first, *others = (dict(p.known.arguments) for p in each.values())
    shared = {k: v for k, v in first.items() if all(other[k] == v for other in others)}
    agreed = replace(best[0].known, arguments=shared, found=best[0].known.found & shared.keys())
    return Probed(agreed, ran=True, among=dict(reversed(each.items())))
