"""The command line's work, for a person's Python: ``verify``, ``check_...`` and ``observe``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aggverify.api.observation import Observation, observation
from aggverify.api.targets import Reducer, target_text
from aggverify.errors import InputError
from aggverify.execution.deadline import NEVER, Deadline
from aggverify.execution.limits import LIMITS
from aggverify.execution.option_types import OptionType
from aggverify.execution.options import BY_KEY, OPTIONS, texts
from aggverify.generation.catalogue import plain_losses
from aggverify.model import Verdict, harmless
from aggverify.oracles import Step
from aggverify.report import replay_text, text
from aggverify.report.document import written
from aggverify.run.opening import loaded
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase
from aggverify.run.planning.enclosed import sandbox
from aggverify.run.planning.request import Request, requested
from aggverify.run.replay import replay
from aggverify.run.session import verify as run
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Pool

_ONE_AT_A_TIME = threading.RLock()
"""A pool serves one thread at a time."""


@contextmanager
def ranks(
    pool: Pool | None = None, deadline: Deadline = NEVER, wanted: Request | None = None
) -> Iterator[Pool]:
    """Give the pool that is passed, or a new one that ends with the block or its time.

    Other threads wait.
    """
    inside = None
    if wanted is not None and wanted.sandbox:
        if pool is not None:
            raise InputError("sandbox is for ranks of the call's own: leave out pool")
        inside = sandbox(wanted.target, wanted.against, wanted.adapter)
    with _ONE_AT_A_TIME:
        if pool is not None:
            yield pool
            return
        with Pool(replace(LIMITS, turn=deadline.check, sandbox=inside)) as own:
            yield own


def request(target: str, options: Mapping[str, Any]) -> Request:
    """Return the options of ``aggverify check`` by name, ``max_examples=50``; raises InputError."""
    given = {}
    for key, value in options.items():
        option = BY_KEY.get(key)
        if option is None or not option.field:
            names = ", ".join(o.key for o in OPTIONS if o.field)
            raise InputError(f"unknown option {key!r:.100} (accepted: {names})")
        if value is None:
            continue
        plain = sorted(value) if isinstance(value, set | frozenset) else value
        if (why := option.wrong(plain)) is not None:
            raise InputError(f"{key} {why}")
        given[key] = texts(plain) if option.kind is OptionType.TEXTS else plain
    return requested(target, given, {})


def verify(reducer: Reducer, *, pool: Pool | None = None, **options: Any) -> tuple[Verdict, ...]:
    """Return what ``aggverify check`` finds: one verdict for each mode.

    ``reducer``: ``path.py[:name]``, ``package.module:name``, or an object with a name in a module,
    which ranks import by that name. ``pool``: ranks to run on, for several calls in a row; without
    one they start and end with the call. ``options`` are those of the command line: ``mode``,
    ``engine``, ``divisor``, ``claim``, ``profile``, ``max_examples``, ``max_time`` (seconds),
    ``seed`` and so on. Raises AggverifyError where nothing can be judged: no such file, no reducer
    in it, a mode that cannot be claimed.
    """
    wanted = request(target_text(reducer), options)
    deadline = wanted.deadline()
    with ranks(pool, deadline, wanted) as running:
        found = run(wanted, lambda event: None, pool=running, deadline=deadline)
    return tuple(map(written, found))


def check_reducer(reducer: Reducer, *, pool: Pool | None = None, **options: Any) -> None:
    """Raise AssertionError, with what the terminal would show, unless the reducer conforms.

    ``reducer`` and ``options`` as for :func:`verify`; a hazard, a refusal and what is not claimed
    raise nothing. Raises AggverifyError where nothing can be judged.
    """
    for verdict in verify(reducer, pool=pool, **options):
        if not verdict.conforms:
            raise AssertionError("\n" + "\n".join(text.verdict_lines(harmless(verdict))))


def check_case(
    case: Mapping[str, Any] | str | Path,
    reducer: Reducer | None = None,
    *,
    oracle: str | None = None,
    against: str | None = None,
    engine: str | None = None,
    adapter: str | None = None,
    pool: Pool | None = None,
) -> None:
    """Raise AssertionError unless a stored counterexample is fixed.

    The error has what ``aggverify replay`` would print.

    ``case``: its plain data, or the path of its JSON file. ``reducer``: as for :func:`verify`; the
    one it was found on by default. ``oracle``, ``against``, ``engine``, ``adapter``: what it was
    found with of one's own. A hazard raises nothing. Raises AggverifyError for what is no case, or
    cannot be run.
    """
    known = isinstance(case, Mapping)
    stored = StoredCase.from_json(case) if known else store.read(str(case), Path())
    target = None if reducer is None else target_text(reducer)
    with ranks(pool) as running:
        result = replay(stored, target, oracle, against, engine, adapter, pool=running)
    found = replay_text.finding(result)
    if not result.fixed and (found is None or found.fails):
        raise AssertionError("\n" + "\n".join(replay_text.lines(result)))


def observe(
    reducer: Reducer,
    step: Step | str,
    layout: Layout | None = None,
    *,
    losses: Sequence[float] | None = None,
    dtype: str = "float64",
    pool: Pool | None = None,
    **options: Any,
) -> Observation:
    """Run one step and look at the weight that every response token gets in the update.

    ``step``: a :class:`Step`, or its line of text (``"2/1101 1/11"``, see :func:`parse_step`).
    ``layout``: one rank and one micro-batch by default. ``losses``: one float per response token,
    flat in the step's order; plain ones by default. ``dtype``: what the reducer gets them in.
    ``reducer``, ``pool`` and ``options`` as for :func:`verify`; without ``mode`` nothing is
    expected. Raises AggverifyError where the step cannot be run; what the reducer raises, and
    ranks that hang or die, are an observation with ``fault``.
    """
    step = parse_step(step) if isinstance(step, str) else step
    layout = layout or Layout.trivial(len(step.samples))
    case = Case(step, layout, tuple(plain_losses(step) if losses is None else losses), dtype)
    wanted = request(target_text(reducer), options)
    with ranks(pool, wanted=wanted) as running, loaded(wanted, running) as found:
        (subject, *_), executor = found
        subject.must_reduce()
        subject = replace(subject, claim=replace(subject.claim, max_world=case.layout.world_size))
        [execution] = executor.run(subject, [case])
        return observation(subject, execution)
