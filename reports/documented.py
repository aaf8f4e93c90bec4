"""The commands of ``docs/frameworks`` on the newest code there is, as ``reports/documented.md``.

``python reports/documented.py --sources DIR [PAGE ...]`` runs each ``aggverify check`` that
``documented.json`` lacks, ``--again`` all of them. ``documented.toml`` says on which code.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify import load_verdict  # noqa: E402
from reports import frameworks  # noqa: E402
from reports.frameworks_page import line  # noqa: E402
from tests.frameworks import wheels  # noqa: E402
from tests.quality.command_lines import commands_of  # noqa: E402

HERE = ROOT / "reports"
PAGES = ROOT / "docs" / "frameworks"
BLOCK = re.compile(r"^```python\n(# (\S+\.py)\n.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEAD = """# The commands of the framework pages, run

Written by `python reports/documented.py --sources DIR`; do not edit. Each row is one command of
[docs/frameworks](../docs/frameworks/index.md), with `--profile quick --world 2`, on newest code.
[documented.toml](documented.toml) says which code that is; absent packages have stand-ins. Findings
are those that fail, and [frameworks.md](frameworks.md) says what is known of them.

| page | command | run on | exit | verdict | findings |
|---|---|---|---|---|---|"""


def documented() -> Iterator[tuple[str, str]]:
    """Page and command."""
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        typed = [*re.findall(r"`(aggverify [^`\n]+)`", text), *FENCE.findall(text)]
        every = dict.fromkeys(commands_of("\n".join(typed)))
        yield from ((page.name, one) for one in every if one.startswith("aggverify check "))


def read() -> dict[str, Any]:
    return frameworks.read(HERE / "documented.json")


def code(target: str, options: Sequence[str]) -> dict[str, Any]:
    """What is known of the target that a page names; what is for a convention is for no other."""
    rows = tomllib.loads((HERE / "documented.toml").read_text(encoding="utf-8"))["code"]
    rows = [row for row in rows if row["target"] == target]
    return next((row for row in rows if {row.get("convention", "")} <= {*options, ""}), {})


def found(row: dict[str, Any], folder: Path) -> tuple[frameworks.Target, frameworks.Source]:
    """The function, and its newest code."""
    module, _, names = row.get("code", row["target"]).partition(":")
    function, *more = names.split(",")
    package, at = row.get("package", ""), row.get("package") or row["checkout"]
    every = [t for t in frameworks.targets() if at in ((t.package,) if package else t.versions)]
    every = [t for t in every if t.module == module] or [*every, frameworks.Target("", "", "", ())]
    known = replace(every[0], needs=tuple(row.get("needs", every[0].needs)), package=package)
    known = replace(known, repository=row.get("repository", known.repository))
    target = replace(known, module=module, function=function, with_it=tuple(more))
    version = row.get("version") or (wheels.newest(folder / "wheels", at)[0] if package else at)
    if (where := frameworks.source(target, version, folder)) is None:
        raise LookupError(f"no checkout {folder / at}")
    return target, where


def put(
    page: str, target: str, row: dict[str, Any], here: Path, folder: Path
) -> tuple[str, str, Any]:
    """What is given for the target, what that is, and in which environment; without a row the page
    has the file itself."""
    for block in BLOCK.finditer((PAGES / page).read_text(encoding="utf-8")):
        (here / block[2]).write_text(block[1], encoding="utf-8")
    (here / "examples").symlink_to(ROOT / "examples")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    if not row:
        return target, "the page's own file", env
    if example := row.get("example"):
        return example, f"{example.partition(':')[0]} for a person's own", env
    what, where = found(row, folder)
    on = f"{what.package or what.repository} {where.version}"
    if what.module.endswith(".py"):  # it imports the framework by itself
        env["AGGVERIFY_SKYRL"] = str(where.path)
        return str(ROOT / row["code"]), on, env
    name = f":{what.function}" if ":" in target else ""
    return f"{frameworks.CANDIDATE}{name}", on, frameworks.environment(what, where)


def ran(page: str, command: str, folder: Path) -> dict[str, Any]:
    _, _, target, *options = shlex.split(command)
    row = code(target, options)
    if why := row.get("why"):
        return {"on": "not run", "exit": "", "verdict": why, "findings": []}
    whole = "--profile" in options
    with tempfile.TemporaryDirectory() as name:
        given, on, env = put(page, target, {} if whole else row, Path(name), folder)
        words = [sys.executable, *("-W", "ignore", "-m", "aggverify", "check"), given, *options]
        words += () if whole else ("--profile", "quick", "--world", "2")
        words += ("--max-time", frameworks.SECONDS, "--report", "json", "--report-dir", name)
        done = subprocess.run(words, cwd=name, env=env, capture_output=True, text=True)
        stored = [load_verdict(file) for file in Path(name).glob("verdict.json")]
    every = [cell for kept in stored for v in kept.verdicts for cell in frameworks.cells(v)]
    said = re.findall("^(?:PASS|FAIL|aggverify: ).*", done.stdout + done.stderr, re.MULTILINE)
    text = re.sub(r",? in [\d.]+ s|\s+[\d.]+( s)?$", "", said[-1] if said else done.stderr[-300:])
    text = text.partition(" · ")[0].replace(name, "").replace(str(ROOT), "")
    some = [(c.mode, ", ".join(c.codes), c.factor and f" × {c.factor}") for c in every if c.codes]
    findings = [f"{mode}: {codes}{times}" for mode, codes, times in some]
    return {"on": on, "exit": done.returncode, "verdict": text, "findings": findings}


def told(store: dict[str, Any]) -> Iterator[str]:
    yield HEAD
    for page, command in documented():
        row = store[f"{page} {command}"]
        parts = (f"[{page[:-3]}](../docs/frameworks/{page})", f"`{command}`", row["on"])
        yield line(*parts, str(row["exit"]), row["verdict"], "; ".join(row["findings"]))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--sources", type=Path, default=ROOT / ".aggverify" / "frameworks")
    parser.add_argument("--again", action="store_true")
    given = parser.parse_intermixed_args(arguments)
    every = {f"{page} {command}": (page, command) for page, command in documented()}
    store = {key: row for key, row in read().items() if key in every}
    for key, (page, command) in every.items():
        if page[:-3] in (given.pages or page) and (given.again or key not in store):
            store[key] = ran(page, command, given.sources)
            print(key, store[key], sep="\n  ", flush=True)
            text = json.dumps(store, indent=1, sort_keys=True) + "\n"
            (HERE / "documented.json").write_text(text, encoding="utf-8")
    if len(store) == len(every):
        (HERE / "documented.md").write_text("\n".join(told(store)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
