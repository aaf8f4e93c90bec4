"""``python reports/first_hours.py [NAME...]`` writes ``reports/first_hours.md``: what people write
in their first hour, and what they are told by ``aggverify check FILE`` without options.

The files and what must be said of each are data (``tests/first_hours.py``), which the tests hold.
With names only those are run: the others' sections stay as they are.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "first_hours.md"
sys.path.insert(0, str(ROOT))

from tests.first_hours import FIRST_HOURS, FirstHour  # noqa: E402

HEAD = """# Twenty first hours and a few more

What newcomers write, right and wrong, and what `aggverify check FILE` tells them without options.
Written by `python reports/first_hours.py`; `tests/quality/test_first_hours.py` holds exit codes and
causes. Times and counts of cases depend on the machine.
"""


def laid_out(hour: FirstHour, folder: Path) -> None:
    """Write the file and what stands beside it."""
    for name, text in {hour.path: hour.source, **hour.beside}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.lstrip("\n"), encoding="utf-8")


def run(hour: FirstHour) -> tuple[int, str]:
    """Exit code and all output of the command, as a person gets it."""
    with tempfile.TemporaryDirectory() as folder:
        laid_out(hour, Path(folder))
        done = subprocess.run(
            [sys.executable, "-m", "aggverify", "check", hour.path],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "COLUMNS": "100", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout.replace(str(Path(folder).resolve()), "/home/you")


def section(hour: FirstHour, code: int, output: str) -> str:
    """One first hour as Markdown."""
    parts = [f"## {hour.name}\n\n{hour.about}\n"]
    parts += [f"`{hour.path}`\n\n```python\n{hour.source.strip()}\n```\n"]
    parts += [f"`{n}`\n\n```python\n{t.strip()}\n```\n" for n, t in hour.beside.items() if t]
    parts += [f"```\n$ aggverify check {hour.path}\n{output.rstrip()}\n$ echo $?\n{code}\n```\n"]
    return "\n".join(parts)


def sections(text: str) -> dict[str, str]:
    """Every section of the report as it is, by name."""
    _, *found = re.split(r"^## (?=\w+$)", text, flags=re.MULTILINE)
    return {part.partition("\n")[0]: f"## {part}".rstrip() + "\n" for part in found}


def main(names: list[str]) -> None:
    """Run all, or those that are named, and write the report."""
    known = sections(REPORT.read_text(encoding="utf-8")) if names and REPORT.exists() else {}
    for hour in FIRST_HOURS:
        if names and hour.name not in names:
            continue
        code, output = run(hour)
        missing = [text for text in hour.says if text not in output]
        there = [text for text in hour.silent if text in output]
        judged = "as expected" if code == hour.code and not missing and not there else "NOT"
        print(f"{hour.name}: {code}, {judged} {missing or ''} {there or ''}", flush=True)
        known[hour.name] = section(hour, code, output)
        kept = [known[hour.name] for hour in FIRST_HOURS if hour.name in known]
        REPORT.write_text("\n".join([HEAD, *kept]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
