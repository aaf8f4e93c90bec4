"""JUnit XML as Jenkins' xUnit plugin and GitLab read it: their schema, as a table.

Elements with the attributes that must and may be there, and their children; junit-10.xsd of the
plugin says so, and GitLab reads a part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest

from aggverify.errors import InputError
from aggverify.report.document import stopped
from aggverify.report.formats import FORMATS
from aggverify.report.model import Document
from tests import verdicts
from tests.unit.test_reports_hostile import HOSTILE


@dataclass(frozen=True)
class Element:
    required: frozenset[str]
    optional: frozenset[str]
    children: frozenset[str] = frozenset()
    text: bool = False


def element(
    required: str = "", optional: str = "", children: str = "", text: bool = False
) -> Element:
    return Element(*(frozenset(words.split()) for words in (required, optional, children)), text)


RESULTS = "skipped error failure system-out system-err"
SCHEMA = {
    "testsuites": element("", "name time tests failures errors", "testsuite"),
    "testsuite": element(
        "name tests failures errors",
        "group time skipped timestamp hostname id package file log url",
        "testsuite properties testcase system-out system-err",
    ),
    "testcase": element("name", "time classname group", RESULTS),
    "properties": element(children="property"),
    "property": element("name value"),
    **dict.fromkeys(("failure", "error", "skipped"), element("", "type message", text=True)),
    **dict.fromkeys(("system-out", "system-err"), element(text=True)),
}
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def check(found: ElementTree.Element) -> None:
    known = SCHEMA[found.tag]
    given = set(found.keys())
    assert known.required <= given <= known.required | known.optional, (found.tag, given)
    assert {child.tag for child in found} <= known.children, found.tag
    assert known.text or not (found.text or "").strip(), found.tag
    assert TIME.fullmatch(found.get("time", ""))
    for count in ("tests", "failures", "errors", "skipped"):
        assert found.get(count, "0").isdecimal()
    for child in found:
        check(child)


@pytest.mark.parametrize(
    "document",
    [
        verdicts.written(verdicts.verdict(HOSTILE, reports=2)),
        verdicts.written(verdicts.verdict(reports=0), verdicts.verdict(executed=0)),
        stopped((), InputError(f"no reducer {HOSTILE}")),
        stopped((), KeyboardInterrupt()),
    ],
    ids=["hostile", "two", "error", "interrupted"],
)
def test_every_service_can_read_it(document: Document) -> None:
    text = FORMATS["junit"].render(document)
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    check(root)
    cases = root.findall(".//testcase")
    assert int(root.get("tests", -1)) == len(cases)
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(names) == len(set(names)) or len(document.verdicts) > 1
