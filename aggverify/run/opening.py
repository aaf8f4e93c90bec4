"""A request's subjects, and ranks that have imported them."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aggverify.checks import installed
from aggverify.conventions import convention
from aggverify.engines import how_to_install
from aggverify.errors import CandidateError, InputError
from aggverify.execution.claim import called_as
from aggverify.execution.deadline import OutOfTime, TooLate
from aggverify.execution.executor import Executor
from aggverify.execution.limits import HANDLER, USUAL, RankKind
from aggverify.execution.oracle_process import interruptible
from aggverify.execution.subject import Subject
from aggverify.oracles import OracleError
from aggverify.run.planning.choosing import choose
from aggverify.run.planning.claims import declaration, terms
from aggverify.run.planning.request import Request
from aggverify.run.planning.resolution import resolved_subjects
from aggverify.run.planning.target import Target, dotted_instead, parse_target
from aggverify.run.search.smoke import taken
from aggverify.trainer.loading import check_described
from aggverify.world import AUTO, GLOO, Pool, Template, TemplateFailure, resource_headroom
from aggverify.world.interpreter import SELDOM

_ITS_OWN = 1000
"""More objects than an interpreter has frozen when it begins: 375 in 3.12, none in others."""


@contextmanager
def loaded(request: Request, pool: Pool) -> Iterator[tuple[tuple[Subject, ...], Executor]]:
    """Give the subjects of a request, and ranks that have imported them; raises AggverifyError."""
    target = parse_target(request.target)
    installed()
    request = placed(request, pool)
    with (
        in_time(),
        opened(
            pool,
            target.setup(),
            ranks=request.ranks,
            adapter=request.adapter,
            engine=request.engine,
        ) as template,
        other_path(
            pool, request.against, adapter=request.adapter, backend=request.ranks.backend
        ) as other,
        judging(pool.turn),
    ):
        found = resolved(request, target, template, other)
        executor = Executor(template, None if other is None else other.executor)
        yield taken(with_room(found, executor), executor), executor


def placed(request: Request, pool: Pool) -> Request:
    """Return the request with a named backend that can be had here; raises AggverifyError."""
    if request.is_on_processors:
        return replace(request, backend=GLOO.name)
    name, far = request.backend or AUTO, request.device is not None
    return replace(request, backend=pool.joined_by(name, request.max_world, far=far).name)


def resolved(
    request: Request, target: Target, template: Template, other: OtherPath | None = None
) -> tuple[Subject, ...]:
    """Return the subjects of a request, one a mode."""
    return resolved_subjects(
        replace(request, backend=template.backend),
        target,
        template.description,
        template.carried,
        None if other is None else other.with_other_path,
    )


def with_room(subjects: Sequence[Subject], executor: Executor) -> tuple[Subject, ...]:
    """Return the subjects with no larger worlds than there is room for.

    Looked into where it is scarce, or fewer ranks were launched.
    """
    wanted = max(s.max_world for s in subjects)
    if not resource_headroom.tight() and wanted <= executor.most:
        return tuple(subjects)
    size, why = executor.largest(wanted)
    fits = [s.max_world <= size for s in subjects]
    return tuple(
        s if enough else s.knowing(room=size, no_room=why)
        for s, enough in zip(subjects, fits, strict=True)
    )


@contextmanager
def judging(turn: Callable[[], None]) -> Iterator[None]:
    """Hold what all judging needs: oracles that ``turn`` interrupts, and few looks for garbage.

    Raises InputError for a person's own oracle, which can be wrong on any step.
    """
    try:
        with interruptible(turn), frozen():
            yield
    except OracleError as error:
        raise InputError(str(error)) from None


@contextmanager
def in_time() -> Iterator[None]:
    """Raise TooLate where time is over before there is a verdict."""
    try:
        yield
    except OutOfTime:
        raise TooLate("--max-time was over before anything could be judged") from None


@dataclass(frozen=True, slots=True)
class OtherPath:
    """The target of ``--against``, loaded in its own template process."""

    target: Target
    description: Mapping[str, Any]
    executor: Executor

    def with_other_path(self, subject: Subject, how: str, what: str | None = None) -> Subject:
        """Return the subject with this path to agree with, called as ``how``: same mode.

        The engine ``what``, or its own if it declares one or is called otherwise.
        """
        choice = choose(self.target, self.description, how)
        what = what or declaration(self.description).get("engine")
        if what is None and choice.convention.name != subject.convention.name:
            what = choice.convention.default_engine(subject.mode)
        declared = what is not None or subject.found.engine_declared
        return subject.compared_with(
            subject.knowing(engine_declared=declared).claiming(
                target=self.target.text,
                function=choice.function,
                terms=terms(choice),
                **called_as(choice.convention),
                engine=what or subject.claim.engine,
            )
        )


@contextmanager
def other_path(
    pool: Pool,
    text: str | None,
    paths: Sequence[str] = (),
    *,
    adapter: str | None = None,
    backend: str = GLOO.name,
) -> Iterator[OtherPath | None]:
    """Give the other path's template process, if one was asked for."""
    if text is None:
        yield None
        return
    target = parse_target(text)
    ranks = RankKind(backend=backend)
    with opened(pool, target.setup(), paths, ranks=ranks, adapter=adapter) as template:
        yield OtherPath(target, template.description, Executor(template))


@contextmanager
def opened(
    pool: Pool,
    setup: dict[str, str],
    paths: Sequence[str] = (),
    *,
    ranks: RankKind = USUAL,
    adapter: str | None = None,
    engine: str | None = None,
    command: str = "check",
) -> Iterator[Template]:
    """Give a template process that has imported the candidate, and the adapter if there is one.

    Raises CandidateError if it cannot, InputError for an adapter that cannot be read.

    ``paths`` come before everything on sys.path there. ``engine``: the one that is asked for, so
    that what it takes is imported once. ``command``: what is to be typed another way where it
    cannot be imported.
    """
    if adapter is not None:
        convention(adapter)  # can be read: reported before anything is imported
    own = None if adapter is None else str(Path(adapter).absolute())
    template = pool.template(
        HANDLER,
        {"target": setup, "compile": ranks.compiled, "adapter": own, "engine": engine},
        paths=paths,
        more=ranks.options,
    )
    where = setup.get("path") or setup["module"]
    if isinstance(template, TemplateFailure):
        detail = f"\n{template.traceback.rstrip()}" if template.traceback else ""
        hint = ""
        if "relative import" in template.message and "path" in setup:
            typed = dotted_instead(Path(setup["path"]), setup.get("name"), command)
            hint = f"\nthe file is part of a package: {typed}" if typed else ""
        missing = re.search(r"No module named '([\w.]+)'", template.message)
        if missing and (what := how_to_install(missing[1])) is not None:
            hint = f"\nit is not installed here: pip install {what}"
        raise CandidateError(f"cannot import {where}: {template.message}{detail}{hint}")
    try:
        try:
            check_described(template.description)
        except InputError as error:
            raise CandidateError(f"cannot use {where}: {error}") from None
        yield template
    finally:
        template.close()


@contextmanager
def frozen() -> Iterator[None]:
    """Freeze the garbage collector's objects while cases make garbage, and collect more seldom.

    Whatever there is by now, modules above all, is not gone through again and again: most of what
    collecting it costs. Left alone where somebody else has frozen it.
    """
    mine, usual = gc.get_freeze_count() < _ITS_OWN, gc.get_threshold()
    if mine:
        gc.freeze()
        gc.set_threshold(max(usual[0], SELDOM), *usual[1:])
    try:
        yield
    finally:
        if mine:
            gc.unfreeze()
            gc.set_threshold(*usual)
