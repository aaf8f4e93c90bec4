"""What real frameworks do, as ``reports/frameworks.md`` and ``.json`` with two heat maps.

``python reports/frameworks.py --sources DIR [NAME ...]`` runs ``check`` on every target of
``frameworks.toml`` that ``frameworks.json`` lacks, or that is called in another way by now. Wheels
are downloaded into ``DIR/wheels``, checkouts are looked for in ``DIR``; one that is not there keeps
the result that it has. ``NAME`` limits it to such frameworks, ``--again`` runs these even though
nothing has changed, ``--told`` only writes the report, ``--pages`` runs the scripts of
``docs/findings`` instead, those of checkouts too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify import load_verdict  # noqa: E402
from aggverify.model import FindingRecord, Verdict  # noqa: E402
from aggverify.report.formatting import number, ratio  # noqa: E402
from tests.frameworks import wheels  # noqa: E402
from tests.frameworks.findings import Page, pages  # noqa: E402

HERE = ROOT / "reports"
CANDIDATE = ROOT / "tests" / "frameworks" / "released.py"
SHIPPED = ROOT / "aggverify" / "conventions"
ROWS = ("context-parallel", "fan-out", "rejection")
"""Left out for all adapters: rows are whole samples and whole rollouts, and their mask is final."""
SECONDS = "900"
"""Of one command, imports included."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function of a framework's, how it is called, and the modes it is asked for."""

    framework: str
    module: str
    function: str
    modes: tuple[str, ...]
    """What ``--mode`` is given; none where the function has only what it has."""
    package: str = ""
    versions: tuple[str, ...] = ()
    """Of the package; or the checkouts, by the names of their folders."""
    repository: str = ""
    folder: str = ""
    """Of the source, where its modules lie."""
    with_it: tuple[str, ...] = ()
    """Other functions of the module that its convention wants."""
    convention: str = ""
    adapter: str = ""
    options: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """What its trainer never has, beside ``ROWS`` where an adapter calls it."""
    world: int = 2
    stands_in: tuple[str, ...] = ()
    """Modules that stand in empty, though they are the framework's own or installed."""
    environment: tuple[str, ...] = ()
    """Variables that it asks for before it can be imported, each ``NAME=value``."""
    needs: tuple[str, ...] = ()
    """Packages that are installed for it, as pip names them: all that is not to stand in."""

    @property
    def called(self) -> tuple[str, ...]:
        how = ("--convention", self.convention) if self.convention else ()
        how = ("--adapter", f"reports/adapters/{self.adapter}") if self.adapter else how
        modes = tuple(word for mode in self.modes for word in ("--mode", mode))
        without = (*(ROWS if self.adapter else ()), *self.without)
        left_out = (word for feature in without for word in ("--without", feature))
        return (*how, *modes, *self.options, *left_out)

    @property
    def asked(self) -> str:
        """Changes where anything does by which its result may."""
        files = [HERE / "adapters" / self.adapter] if self.adapter else _shipped(self.convention)
        words = [self.module, self.function, *self.called, *self.stands_in, *self.environment]
        words += self.needs
        digest = hashlib.sha256("\0".join(words).encode())
        for file in files:
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a target's code lies, and which state of it that is."""

    version: str
    path: Path
    needed: Path | None = None
    """Where the packages that it needs are installed."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one mode came to."""

    mode: str
    engine: str
    outcome: str
    """``conforms``, ``finding``, ``refused``, ``cannot be expressed`` or ``not run``."""
    why: str = ""
    codes: tuple[str, ...] = ()
    factor: str = ""
    bug: str = ""
    case: str = ""
    weights: str = ""
    steps: int = 0


def _shipped(convention: str) -> list[Path]:
    name = convention.replace("-", "_")
    return sorted(p for p in SHIPPED.glob(f"**/{name}.py")) or [SHIPPED / "__init__.py"]


def targets() -> list[Target]:
    text = (HERE / "frameworks.toml").read_text(encoding="utf-8")
    lists = ("modes", "versions", "options", "stands_in", "needs", "with_it", "without")
    lists += ("environment",)
    rows = tomllib.loads(text)["target"]
    return [Target(**{k: tuple(v) if k in lists else v for k, v in row.items()}) for row in rows]


def source(target: Target, version: str, folder: Path) -> Source | None:
    """None where a checkout is not there."""
    needed = wheels.installed(folder / "wheels", *target.needs) if target.needs else None
    if target.package:
        where = wheels.unpacked(folder / "wheels", target.package, version)
        return Source(version, where / target.folder, needed)
    path = folder / version
    return Source(revision(path), path / target.folder, needed) if path.is_dir() else None


def revision(path: Path) -> str:
    """Of a checkout, or of an exported tree with its commit in a file by the same name."""
    told = path.with_name(f"{path.name}.revision")
    if told.exists():
        return told.read_text().split()[0][:9]
    command = ["git", "-C", str(path), "rev-parse", "--short=9", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def environment(target: Target, where: Source) -> dict[str, str]:
    """In which ``CANDIDATE`` is the target, out of that source."""
    names = ",".join((target.function.split(".")[0], *target.with_it))
    return {
        **os.environ,
        **dict(variable.split("=", 1) for variable in target.environment),
        "AGGVERIFY_RELEASED": f"{where.path}:{target.module}:{names}",
        "AGGVERIFY_RELEASED_WITH": str(where.needed or ""),
        "AGGVERIFY_STANDS_IN": " ".join(target.stands_in),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def ran(target: Target, where: Source) -> list[Cell]:
    """One command for all modes; a mode by itself where that is no verdict."""
    with tempfile.TemporaryDirectory() as kept:
        env = environment(target, where)
        command = [sys.executable, "-W", "ignore", "-m", "aggverify", "check"]
        command += [f"{CANDIDATE.relative_to(ROOT)}:{target.function}", *target.called]
        command += ["--profile", "quick", "--world", str(target.world), "--max-time", SECONDS]
        command += ["--report", "json", "--report-dir", kept]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        stored = Path(kept) / "verdict.json"
        document = load_verdict(stored) if stored.exists() else None
        if document is not None and document.verdicts:
            return [told for v in document.verdicts for told in cells(v)]
    error = (done.stderr or done.stdout).strip().removeprefix("aggverify: error: ")
    error = error.replace(str(where.path), "").replace(str(ROOT), "")[-600:]
    never = "never" in error or "cannot be right" in error
    outcome = "cannot be expressed" if never else "not run"
    return [Cell(mode, "", outcome, why=error) for mode in target.modes or ("",)]


def cells(verdict: Verdict) -> Iterator[Cell]:
    failing = [f for f in verdict.findings if f.effect == "fails" and f.waived is None]
    codes = tuple(dict.fromkeys(finding.code for finding in failing))
    outcome, why = ("finding", "") if failing else ("conforms", "")
    if not failing and not verdict.conforms:
        told = [f"{c.name}: {c.reason}" for c in verdict.not_judged]
        outcome, why = "not run", "; ".join(told) or str(verdict.incomplete or "not judged")
    elif not failing and verdict.refused:
        why = "; ".join(f"refuses {r.what}: {r.words}" for r in verdict.refused)
    more: dict[str, Any] = first(failing[0]) if failing else {}
    mode = str(verdict.claim["mode"] or verdict.mode_name).partition("(")[0]
    yield Cell(mode, verdict.engine, outcome, why, codes, steps=verdict.executed, **more)


def first(finding: FindingRecord) -> dict[str, str]:
    """The smallest case of what weighs most."""
    told = {"factor": finding.factor or "", "bug": finding.bugs[0].sentence if finding.bugs else ""}
    told["bug"] = told["bug"] or finding.diagnosis or finding.message or finding.title
    if (step := finding.step) is None:
        return told
    masks = (
        "".join(("1" if run.mask == "unmasked" else "0") * run.tokens for run in sample.runs)
        for sample in step.samples[:4]
    )
    told["case"] = (
        f"masks {' '.join(masks)}; dp={step.dp_size} cp={step.cp_size} K={step.micro_batches}"
    )
    if finding.expected and finding.observed and finding.token is not None:
        due, got = finding.expected[finding.token], finding.observed[finding.token]
        told["weights"] = f"{number(got)} for {due}"
        found = ratio(Fraction(due), got)
        told["factor"] = told["factor"] or ("" if found is None else str(found))
    return told


Store = dict[str, Any]


def key(target: Target, version: str) -> str:
    how = (b for a, b in pairwise(target.options) if a in ("--engine", "--micro-batch-size"))
    return " ".join((target.framework, version, target.function, *how))


def missing(
    chosen: Sequence[Target], store: Store, folder: Path, again: bool
) -> Iterator[tuple[Target, Source]]:
    for target in chosen:
        for version in target.versions:
            where = source(target, version, folder)
            if where is None:
                print(f"no checkout of {target.framework}: {folder / version}", file=sys.stderr)
            elif again or not is_kept(target, where, store):
                yield target, where


def is_kept(target: Target, where: Source, store: Store) -> bool:
    row = store.get(key(target, where.version), {})
    ran = bool(row) and all(cell["outcome"] != "not run" for cell in row["cells"])
    return ran and row["asked"] == target.asked


def row(target: Target, where: Source, found: Sequence[Cell]) -> dict[str, Any]:
    return {
        "framework": target.framework,
        "version": where.version,
        "source": target.package or target.repository,
        "function": f"{target.module}:{target.function}",
        "command": " ".join(target.called),
        "asked": target.asked,
        "modes": list(target.modes),
        "cells": [asdict(cell) for cell in found],
    }


def read(file: Path) -> Store:
    return json.loads(file.read_text()) if file.exists() else {}


def kept(file: Path, name: str, row: dict[str, Any]) -> Store:
    """All rows with this one: read once more, since another command may have written some."""
    with FileLock(Path(tempfile.gettempdir()) / "aggverify-frameworks.lock"):
        store = read(file) | {name: row}
        file.write_text(json.dumps(store, indent=1, sort_keys=True) + "\n")
    return store


def reproduced(page: Page, folder: Path) -> bool:
    """Whether a page's script prints what the page has."""
    where = folder / page.checkout
    if page.package:
        where = wheels.unpacked(folder / "wheels", page.package, page.version)
    with tempfile.TemporaryDirectory() as kept:
        seen = page.run(where, Path(kept), folder / "wheels")
    same = seen == page.printed
    print(page.name, "reproduced" if same else f"differs:\n{seen}", flush=True)
    return same


def main(arguments: list[str]) -> None:
    from reports import frameworks_page

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sources", type=Path, default=ROOT / ".aggverify" / "frameworks")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--told", action="store_true")
    parser.add_argument("--pages", action="store_true")
    given = parser.parse_intermixed_args(arguments)
    if given.pages:
        seen = [reproduced(page, given.sources) for page in pages()]
        sys.exit(not all(seen))
    file = HERE / "frameworks.json"
    store = read(file)
    chosen = [t for t in targets() if not given.names or t.framework in given.names]
    for target, where in () if given.told else missing(chosen, store, given.sources, given.again):
        found = ran(target, where)
        store = kept(file, key(target, where.version), row(target, where, found))
        told = [f"{c.mode}: {c.outcome} {' '.join(c.codes)} {c.why[-200:]}" for c in found]
        print(key(target, where.version), *told, sep="\n  ", flush=True)
    frameworks_page.write(store, HERE)


if __name__ == "__main__":
    main(sys.argv[1:])
