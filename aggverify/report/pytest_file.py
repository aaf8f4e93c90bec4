"""A test file that fails until every finding is fixed: each case in full, none of our own files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pprint import pformat
from typing import Any

from aggverify import __version__
from aggverify.model import Document, FindingRecord, Verdict, harmless
from aggverify.report import view_model

_ODD = re.compile(r"[^0-9a-z]+")


def render(document: Document) -> str:
    """One test a cause that fails; ``python -m pytest`` runs it from the project's folder."""
    safe = harmless(document)
    failing = [(v, cause[0]) for v, cause in view_model.every_cause(safe) if cause[0].fails]
    parts = [f'"""Written by aggverify {__version__}: every test fails until its case is fixed."""']
    if failing:
        parts.append("import aggverify")
    else:
        parts.append("# Nothing that fails was found: there is nothing to test.")
    names: set[str] = set()
    parts += [_test(verdict, finding, names) for verdict, finding in failing]
    return "\n\n".join(parts) + "\n"


def _test(verdict: Verdict, finding: FindingRecord, names: set[str]) -> str:
    """Return one test; text from others stands in literals only, where it cannot run."""
    name = _ODD.sub("_", f"test_{finding.code}_{finding.id}_{verdict.mode_name}".lower()).strip("_")
    while name in names:
        name += "_"
    names.add(name)
    constant = name.removeprefix("test_").upper()
    title = f"{finding.title}: {verdict.function} {view_model.consequence(finding, verdict)}"
    lines = [
        f"{constant} = (",
        *_indented(pformat(finding.case, width=92, compact=True, sort_dicts=False)),
        ")",
        "",
        "",
        f"def {name}():",
        f"    _ = {title!r}",
        f"    aggverify.check_case({', '.join((constant, *_given_options(finding)))})",
    ]
    return "\n" + "\n".join(lines)


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}" for line in text.split("\n"))


def _given_options(finding: FindingRecord) -> Iterator[str]:
    """Options of the case that only a person can give, as its replay command does."""
    words: list[Any] = list(finding.replay)
    for option in ("oracle", "adapter", "against", "engine"):
        if f"--{option}" in words:
            yield f"{option}={words[words.index(f'--{option}') + 1]!r}"
