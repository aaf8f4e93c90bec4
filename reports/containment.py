"""``python reports/containment.py [NAME...]`` writes ``reports/containment.md``: poor surroundings
and code that means harm, what must come of each, and what did. Exits 1 if any was otherwise.

Everything runs in control groups with few processes and little memory, a few at a time, and each
command is given a time of its own (``--max-time``). With names only those are run, and the others'
rows stay as they are. What is tried is in ``attacks.py``; ``python benchmarks/fuzz_files.py`` makes
the figure at the end.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from attacks import EXAMPLES, HOSTILE, NOBODY, ROOT, Attack, surrounded

sys.path.insert(0, str(ROOT))

from aggverify.errors import InputError
from aggverify.model import Document, load
from aggverify.report.view_model import headline
from tests.caged import Ran, cage

REPORT = ROOT / "reports" / "containment.md"
FUZZED = ROOT / "reports" / "fuzzed.txt"
AT_ONCE = 2
SECONDS = 300
"""A wait without end, for this report."""
MARGIN = 15.0
"""Seconds beyond those asked for: the interpreter's start and end and the report, beside others."""
AT_MOST = 1.0
"""Seconds until nothing is left of what was sent a signal."""
HEAD = """# What it stands

Poor surroundings and code that means harm, each in a control group of its own: what must come of
it, and what did. Written by `python reports/containment.py`; times depend on the machine. Exit
codes: 0 conforms, 1 findings, 2 could not judge, with a sentence. Every command is given a time
(`--max-time`, 60 s, or 90 s in poor surroundings), and has ended {margin:.0f} s after that at most.
In poor surroundings each of the README's {examples} examples is run, or a right and a wrong one
(`--profile quick --max-examples 1`, in worlds of up to four unless more are said), and must come to
the exit code that it has elsewhere, or to 2 with a sentence. Signals are sent to processes of a
pool, of whose jobs `tests/world/test_ended.py` says what becomes.

| attack | expected | seen | exit code | seconds |
|---|---|---|---|---|
"""


def others() -> str:
    """An interpreter that other users may run: this one, or else the system's."""
    real = Path(sys.executable).resolve()
    if all(each.stat().st_mode & 1 for each in (real, *real.parents)):
        return sys.executable
    return f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Came:
    """What came of an attack."""

    of: Attack
    ran: Ran
    seconds: float
    document: Document | None
    """The verdict document, where the command got as far as to write one."""


def run(attack: Attack, folder: Path) -> Came:
    """Run it there."""
    if attack.source in EXAMPLES:  # which may import those beside it
        shutil.copytree((ROOT / attack.source).parent, folder, dirs_exist_ok=True)
    (folder / "r.py").write_text(attack.text)
    folder.chmod(0o777)
    python = others() if attack.wrapped == NOBODY else sys.executable
    packages = [entry for entry in sys.path if entry.endswith("-packages")]
    asked = (*attack.options, "--max-time", str(attack.asked))
    command = [python, "-m", "aggverify", "check", "r.py", *asked]
    began = time.monotonic()
    with cage(attack.pids, attack.memory) as made:
        found = made.run(
            ["timeout", "-k", "5", str(SECONDS), *attack.wrapped, *command],
            folder,
            {"PYTHONPATH": ":".join([str(ROOT), *packages]), "COLUMNS": "100"},
        )
    seconds, document = time.monotonic() - began, None
    with contextlib.suppress(InputError):
        document = load(folder / ".aggverify" / "verdict.json")
    return Came(attack, found, seconds, document)


def judged(came: Came) -> str:
    """Empty where all is as it must be."""
    attack, found = came.of, came.ran
    if found.left:
        return f"{len(found.left)} processes left"
    if found.code not in attack.codes:
        return f"exit code {found.code}"
    if came.seconds > attack.asked + MARGIN:
        return f"took {came.seconds:.0f} s"
    if "Traceback" in found.text and found.code == 2:
        return "a traceback"
    if attack.says and not re.search(attack.says, found.text):
        return f"does not say {attack.says!r}"
    if found.code == 2 and not told(came):
        return "no sentence"
    return ""


def told(came: Came) -> str:
    """What the command has told, by its document: why it could not judge, else what it found, else
    what it says of the whole."""
    document = came.document
    if document is None:  # there is none where it never began: its one sentence
        return came.ran.text.partition("aggverify: error: ")[2].partition("\n")[0]
    if document.error is not None:
        return document.error.partition("\n")[0]
    findings = [f for verdict in document.verdicts for f in verdict.findings if f.fails]
    if findings:
        first = findings[0]
        return f"{first.code} {first.title}: {first.message.partition(chr(10))[0]}"
    whole = headline(document)
    reasons = [c.reason for v in document.verdicts for c in v.not_judged if c.reason]
    if reasons and document.incomplete is None:
        whole = f"{whole}: {reasons[0]}"
    if document.exit:
        return whole
    warned = [f"{w.code} {w.detail}" for v in document.verdicts for w in v.loud]
    return "; ".join([whole, *warned])


def cell(text: str) -> str:
    """As it may stand in a table; folders and groups of this run left out."""
    text = re.sub(r"/tmp/tmp\w+/", "", text)
    text = re.sub(r"aggverify-[0-9a-f]{32}", "…", text).replace(str(Path.home()), "~")
    return textwrap.shorten(text, 240, placeholder=" …").replace("|", "\\|")


def row(cames: Sequence[Came]) -> str:
    """One row of the table: of an attack, or of all examples in some surroundings."""
    first = cames[0].of
    expected = " or ".join(map(str, first.codes))
    if len(cames) > 1:
        expected = "as elsewhere, or 2"
    said = f", says `{first.says}`".replace("|", "\\|") if first.says else ""
    seen = []
    for words, group in groupby(sorted(cames, key=_words), key=_words):
        alike = list(group)
        name = Path(alike[0].of.source).stem if len(alike) == 1 else f"{len(alike)} examples"
        seen.append(f"{name}: {words}" if len(cames) > 1 else words)
    codes = Counter(came.ran.code for came in cames)
    shown = ", ".join(f"{c}" + (f" ({n} times)" if n > 1 else "") for c, n in sorted(codes.items()))
    seconds = sorted(round(came.seconds) for came in cames)
    times = f"{seconds[0]}" if len(seconds) == 1 else f"{seconds[0]} to {seconds[-1]}"
    return f"| {first.name} | {expected}{said} | {'; '.join(seen)} | {shown} | {times} |\n"


def _words(came: Came) -> str:
    wrong = judged(came)
    words = cell(told(came))
    if came.of.source in EXAMPLES and came.ran.code != 2 and not wrong:
        words = "as elsewhere"
        if came.document is not None and any(v.loud for v in came.document.verdicts):
            codes = sorted({w.code for v in came.document.verdicts for w in v.loud})
            words += f", with {', '.join(codes)}"
    return f"**{wrong}**: {words}" if wrong else words


def main(names: list[str], tell: Callable[[str], None] = print) -> int:
    """Run all, or those whose name has one of these in it, and write the report."""
    attacks = [*surrounded(), *HOSTILE]
    every = list(dict.fromkeys(attack.name for attack in attacks))
    old = REPORT.read_text(encoding="utf-8") if names and REPORT.exists() else ""
    found_rows = re.finditer(r"^\| ([^|]+?) \|.*\n", old, re.MULTILINE)
    rows = {each[1]: each[0] for each in found_rows}
    wanted = [a for a in attacks if not names or any(name in a.name for name in names)]
    failed = False
    with ThreadPoolExecutor(AT_ONCE) as several:
        for name, group in groupby(several.map(ran, wanted), key=lambda came: came.of.name):
            cames = list(group)
            failed |= any(map(judged, cames))
            rows[name] = row(cames)
            tell(rows[name].strip())
            write(rows, every)
    if not names or any(name in "SIGKILL, SIGTERM and SIGSTOP" for name in names):
        with tempfile.TemporaryDirectory() as folder:
            signals = ended(Path(folder))
        failed |= any("**" in each for each in signals.values())
        rows |= signals
        tell("".join(signals.values()).strip())
        write(rows, every)
    return int(failed)


def write(rows: Mapping[str, str], every: Sequence[str]) -> None:
    """The report: attacks in this order, then all others."""
    kept = [rows[name] for name in every if name in rows]
    signals = [each for name, each in rows.items() if name.startswith("SIG")]
    fuzzed = f"\n{FUZZED.read_text()}" if FUZZED.exists() else ""
    head = HEAD.format(margin=MARGIN, examples=len(EXAMPLES))
    REPORT.write_text("".join([head, *kept, *signals, fuzzed]), encoding="utf-8")


def ended(folder: Path) -> dict[str, str]:
    """The rows of the test of whom is ended or stopped; by itself, for the sake of its seconds."""
    results = folder / "results.xml"
    options = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1"]
    command = [sys.executable, "-m", "pytest", *options, "-m", "", f"--junitxml={results}"]
    subprocess.run([*command, "tests/world/test_ended.py"], cwd=ROOT, stdout=subprocess.DEVNULL)
    rows = {}
    for case in ElementTree.parse(results).iter("testcase"):
        name = case.attrib["name"].partition("[")[2].rstrip("]")
        found = [each.attrib["value"] for each in case.iter("property")]
        seen = f"nothing is left after {found[0]} s" if found else "**the test fails**"
        seen = f"**{seen}**" if found and float(found[0]) > AT_MOST else seen
        time = float(case.attrib["time"])
        rows[name] = f"| {name} | nothing left within {AT_MOST:g} s | {seen} | | {time:.0f} |\n"
    return rows


def ran(attack: Attack) -> Came:
    """What came of it, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return run(attack, Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
