"""Every format a verdict document can be written in: one file each, and one entry here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module

from aggverify.errors import unknown
from aggverify.report.model import Document


@dataclass(frozen=True, slots=True)
class Format:
    """What it is called, its file, and the module whose ``render(document)`` gives its text."""

    what: str
    file: str
    module: str

    def render(self, document: Document) -> str:
        """The text of the file; its module, and what that needs, is imported only now."""
        text: str = import_module(f"aggverify.report.{self.module}").render(document)
        return text


FORMATS: Mapping[str, Format] = {
    "json": Format("verdict document", "verdict.json", "model"),
    "junit": Format("JUnit XML", "junit.xml", "junit"),
    "md": Format("Markdown", "summary.md", "markdown"),
    "html": Format("HTML", "report.html", "page"),
    "text": Format("text", "report.txt", "text"),
}


def one(name: str) -> Format:
    """The format of that name; raises InputError with the nearest one."""
    if name not in FORMATS:
        raise unknown("report format", name, FORMATS)
    return FORMATS[name]


def chosen(names: Iterable[str]) -> dict[str, Format]:
    """Formats by name, each once; raises InputError."""
    return {name: one(name) for name in map(str.strip, names) if name}
