"""Two revisions checked with one plan, each on its own files, and each on the other's cases."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aggverify.errors import InputError
from aggverify.files import put, write_inside
from aggverify.model import Document, FindingRecord, load, render
from aggverify.regression.compare import compare
from aggverify.regression.documents import merged
from aggverify.regression.git_worktrees import Tree, checked_out, temporary, uncommitted
from aggverify.regression.model import CONFORMS, Comparison
from aggverify.regression.plan import ComparisonPlan

Progress = Callable[[str], None]
PATIENCE = 60
"""Seconds for a command that was interrupted to end its ranks."""

# A check ends with this process, even where that is killed.
_CODE = (
    "from aggverify.world.linux import die_with_parent; die_with_parent({parent}); "
    "from aggverify.cli import main; main()"
)


def compared(
    base: str,
    head: str,
    plan: ComparisonPlan,
    *,
    strict: bool,
    keep: Path,
    progress: Progress,
    documents: Path | None = None,
) -> Comparison:
    """Return the comparison of two revisions.

    Cases are stored below ``keep``, both sides' documents in the folder ``documents``.
    ``progress``: called with each step.

    Raises InputError for what is no revision, and where a check comes to no document.
    """
    with checked_out(base, head) as (before, after), temporary(before.top) as folder:
        if uncommitted(base, head):
            progress("uncommitted changes are not compared: say . for the files as they are")
        sides: dict[str, list[Document]] = {"base": [], "head": []}
        for n, target in enumerate(plan.targets):
            files = folder / f"base{n}", folder / f"head{n}"
            has = [_is_there(target, tree) for tree in (before, after)]
            if not any(has):
                raise InputError(f"{target} is in neither {before.name} nor {after.name}")
            other: list[str] = []
            if has[0]:
                progress(f"checks {target} in {before.name}")
                other = ["--replay-from", _check(before, target, files[0], plan)]
            if has[1]:
                progress(f"checks {target} in {after.name}")
                _check(after, target, files[1], plan, *other)
            if all(has):
                progress(f"runs the cases of {after.name} in {before.name}")
                into = ("--replay-into", str(files[0] / "verdict.json"))
                given = ("--replay-from", str(files[1] / "verdict.json"))
                _check(before, target, files[0], plan, *given, *into)
            for name, there, file in zip(sides, has, files, strict=True):
                sides[name] += [load(file / "verdict.json")] if there else []
        pairs = (sides["base"], sides["head"]), (sides["head"], sides["base"])
        made = [_kept(_side(found, other), keep) for found, other in pairs]
        for side, document in zip(sides, made, strict=True):
            if documents is not None:
                put(documents / f"{side}.json", render(document))
        return compare(*made, strict=strict, names=(before.name, after.name))


def _side(found: Sequence[Document], other: Sequence[Document]) -> Document:
    """All of one side; where it has none of the targets, nothing is verified there."""
    if found:
        return merged(found)
    nothing: dict[str, Any] = {"error": None, "incomplete": None, "exit": CONFORMS}
    return replace(other[0], verdicts=(), replays=(), baseline=(), **nothing)


def _is_there(target: str, tree: Tree) -> bool:
    """Whether the tree has the target's file; a module counts as there, as its import reports."""
    head = target.rpartition(":")[0] if not target.endswith(".py") else target
    return not head.endswith(".py") or (tree.here / head).is_file()


def _check(tree: Tree, target: str, folder: Path, plan: ComparisonPlan, *more: str) -> str:
    """Run one check in the tree; return the path of its document."""
    written = ("--report", "json", "--report-dir", str(folder))
    command = [sys.executable, "-P", "-c", _CODE.format(parent=os.getpid()), "check", target]
    command += [*plan.arguments(tree.here), *written]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "errors.txt", "w+") as errors:  # noqa: PTH123
        code = _run([*command, *more], tree, errors)
        errors.seek(0)
        message = errors.read().strip()
    path = folder / "verdict.json"
    if code == 130:
        raise KeyboardInterrupt
    if not path.exists():
        raise InputError(f"{target} in {tree.name}: {message or f'exit code {code}'}")
    return str(path)


def _run(command: Sequence[str], tree: Tree, errors: Any) -> int:
    """Return its exit code. Ctrl-C reaches this process alone, which hands it on and waits."""
    running = subprocess.Popen(
        command,
        cwd=tree.here,
        env=tree.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )
    try:
        return running.wait()
    except BaseException:
        running.send_signal(signal.SIGINT)
        try:
            running.wait(PATIENCE)
        except BaseException:
            running.kill()
            running.wait()
            raise
        raise


def _kept(document: Document, keep: Path) -> Document:
    """Store every case where the person is; return a document whose commands find it there."""
    verdicts = tuple(
        replace(verdict, findings=tuple(_stored(finding, keep) for finding in verdict.findings))
        for verdict in document.verdicts
    )
    return replace(document, verdicts=verdicts)


def _stored(finding: FindingRecord, keep: Path) -> FindingRecord:
    """Store its case; return it with a command that finds the case there without --report-dir."""
    text = json.dumps(finding.case, separators=(",", ":")) + "\n"
    write_inside(keep, f"cases/{finding.id}.json", text)
    words = finding.replay
    option = words.index("--report-dir") if "--report-dir" in words else len(words)
    return replace(finding, replay=(*words[:option], *words[option + 2 :]))
