"""Text from a candidate changes nothing but text: every report keeps its shape."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace

from aggverify.errors import InputError
from aggverify.report import github
from aggverify.report.document import stopped
from aggverify.report.formats import FORMATS
from tests import verdicts

HOSTILE = (
    "{{ 7 * 7 }}{% raw %} <script>alert(1)</script></details></pre></td><img src=x onerror=y> "
    "| table | \\| `` ``` ~~~~ "
    "]]> --> &lt; \x1b[31mred \x1b]8;;http://evil\x07link \u202e\u2066\u200b\0\ud800\ufffe "
    "[a](javascript:b) ![i](http://evil) http://evil www.evil.org x@y.org @user #12 *b* _i_ ~s~ "
    "##[error] %0A::error::p :smile: \" ' \r\n::error file=x::pwned\n"
    "````\n</details>\n# Heading\n- item\n\n| a |\n|---|\n<b>\r::stop-commands::x\n    code"
)
PIECES = st.sampled_from(
    [*"<>&`|[]()!*_~\\#@:%-+=.\"'{}$ a1\t\n\r\0\x1b\u202e/", "</details>", "\n\n"]
)


def shape_of_html(text: str) -> list[tuple[object, ...]]:
    """Every tag with its attributes, in order."""
    found: list[tuple[object, ...]] = []

    class Shape(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "wbr":  # where a name may go on in the next line
                found.append((tag, *attrs))

        def handle_endtag(self, tag: str) -> None:
            found.append(("/" + tag,))

        def handle_comment(self, data: str) -> None:
            found.append(("comment", data))

    parser = Shape()
    parser.feed(text)
    parser.close()
    return found


def shape_of_markdown(text: str) -> list[tuple[object, ...]]:
    return shape_of_html(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


def shape_of_xml(text: str) -> list[tuple[object, ...]]:
    return [(e.tag, *e.keys()) for e in ElementTree.fromstring(text).iter()]


SHAPES = {"html": shape_of_html, "md": shape_of_markdown, "junit": shape_of_xml}


@pytest.mark.parametrize("name", SHAPES)
def test_hostile_text_leaves_the_shape_alone(name: str) -> None:
    for document in (
        lambda text: verdicts.written(verdicts.verdict(text)),
        lambda text: stopped((), InputError(f"no reducer {text}")),
    ):
        plain, hostile = (FORMATS[name].render(document(text)) for text in ("word", HOSTILE))
        assert SHAPES[name](hostile) == SHAPES[name](plain)
        assert all(line.isprintable() for line in hostile.split("\n"))
        assert "7 * 7" in hostile, "shown as it is"
        hostile.encode()


def test_the_html_page_loads_and_runs_nothing() -> None:
    text = FORMATS["html"].render(verdicts.written(verdicts.verdict(HOSTILE)))
    tags = shape_of_html(text)
    assert not {"script", "link", "img", "iframe", "a", "object"} & {tag[0] for tag in tags}
    attributes = {name for tag in tags for name, _ in tag[1:] if tag[0] not in ("comment", "meta")}
    assert attributes <= {"class", "lang"}
    assert "default-src 'none'" in text


def test_markdown_outside_code_mentions_and_links_nothing() -> None:
    text = FORMATS["md"].render(verdicts.written(verdicts.verdict(HOSTILE)))
    fences = re.compile(r"^(`{3,})\w*\n.*?^\1$", re.MULTILINE | re.DOTALL)
    outside = fences.sub("", text)
    assert len(fences.findall(text)) == 2
    for link in ("://", "www.", "@", ":smile:", "<b>"):
        assert link not in outside, link
    assert not re.search(r"(?<!&)#\d", outside)


@settings(max_examples=60)
@given(st.lists(PIECES, max_size=12).map("".join))
@example(HOSTILE)
def test_no_text_breaks_markdown(text: str) -> None:
    plain, drawn = (verdicts.written(verdicts.verdict(f"a{t}")) for t in ("", text))
    shape = shape_of_markdown(FORMATS["md"].render(drawn))
    assert shape == shape_of_markdown(FORMATS["md"].render(plain))


def test_a_workflow_command_is_one_line_with_our_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "r\u202e,line=1::x%0A\n.py"
    Path(name).write_text("reduce = None\n")
    document = verdicts.written(verdicts.verdict(HOSTILE))
    (verdict,) = document.verdicts
    titled = tuple(replace(finding, title=HOSTILE) for finding in verdict.findings)
    verdict = replace(verdict, target=name, function="reduce", findings=titled)
    document = replace(document, verdicts=(verdict,))
    lines = github.commands(document, tmp_path)
    lines += github.commands(stopped((), InputError(HOSTILE)), tmp_path, target=name)
    assert len(lines) == 2
    for line in lines:
        assert line.isprintable(), "one line, no escape sequence"
        # As the runner reads it: properties up to the first "::", then the message.
        head, _, message = line.removeprefix("::error ").partition("::")
        properties = [part.partition("=") for part in head.split(",")]
        assert [key for key, _, _ in properties] == ["file", "line", "title"]
        assert properties[0][2] == "r�%2Cline=1%3A%3Ax%250A�.py"
        assert "%0A" in message and "pwned" in message
        told = message.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
        assert "%0A�:error::p" in told or "%0A::error::p" in told, "a percent sign stays one"
        assert not any(one.lstrip().startswith("::") for one in told.splitlines())


@pytest.mark.parametrize("reports", [0, 2])
def test_the_test_file_is_python_whatever_text_is_in_it(reports: int) -> None:
    text = FORMATS["pytest"].render(verdicts.written(verdicts.verdict(HOSTILE, reports=reports)))
    code = compile(text, "test_findings.py", "exec")
    tests = [name for name in code.co_names if name.startswith("test_agv201_")]
    assert len(tests) == reports
    assert all(line.isprintable() for line in text.split("\n"))
