"""Every format a verdict document can be written in: one file each, and one entry here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

from aggverify.errors import unknown
from aggverify.model import Document
from aggverify.plugins import Table


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name, its file, and the module whose ``render(document)`` gives its text."""

    what: str
    file: str
    module: str

    def render(self, document: Document) -> str:
        """Return the text of the file; its module, and what that needs, is imported only now."""
        text: str = import_module(self.module).render(document)
        return text


OWN = {
    "json": Format("verdict document", "verdict.json", "aggverify.model"),
    "junit": Format("JUnit XML", "junit.xml", "aggverify.report.junit"),
    "md": Format("Markdown", "summary.md", "aggverify.report.markdown"),
    "html": Format("HTML", "report.html", "aggverify.report.html_page"),
    "sarif": Format("SARIF", "report.sarif", "aggverify.report.sarif"),
    "pytest": Format("pytest file", "test_findings.py", "aggverify.report.pytest_file"),
    "text": Format("text", "report.txt", "aggverify.report.text"),
}
FORMATS: Table[Format] = Table("reports", lambda: Format, OWN)
"""The tool's own, and those that packages bring."""


def one(name: str) -> Format:
    """Return the format of that name; raises InputError with the nearest one."""
    if name not in FORMATS:
        raise unknown("report format", name, FORMATS)
    return FORMATS[name]


def chosen(names: Iterable[str]) -> dict[str, Format]:
    """Return formats by name, each once; raises InputError."""
    return {name: one(name) for name in map(str.strip, names) if name}
