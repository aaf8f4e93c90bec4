"""Text from the candidate cannot pass for ours, on a terminal or in the log of a CI service."""

from __future__ import annotations

import json

import pytest

from aggverify.escape import clean, indented, json_text, line


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J\x1b[31mred",
        "\x1b]8;;http://evil\x07link",
        "\x9b31m",
        "bell\x07 back\x08 return\r",
        "\u202egnp.exe",
        "\u2066isolate",
        "zero\u200bwidth",
        "line\u2028separator \x85 \x0b \x0c",
        "\ud800",
    ],
)
def test_nothing_invisible_is_left(text: str) -> None:
    assert clean(text).isprintable()
    clean(text).encode()


@pytest.mark.parametrize(
    "text",
    [
        "::error::x",
        "  ::set-output name=a::b",
        "a\n::stop-commands::t",
        "\t::warning::",
        ":::error",
    ],
)
def test_no_line_begins_with_a_workflow_command(text: str) -> None:
    for one in clean(text).split("\n"):
        assert not one.lstrip().startswith("::"), one


@pytest.mark.parametrize("text", ["##[error]x", "so ##vso[task.setvariable]", "##teamcity[a]"])
def test_no_command_in_the_middle_of_a_line(text: str) -> None:
    assert "##" not in clean(text)


@pytest.mark.parametrize("text", ["plain · text é 数", "a::b", "# comment ## twice", "x = y[::2]"])
def test_ordinary_text_stays(text: str) -> None:
    assert clean(text) == line(text) == text


def test_one_line_stays_one_line() -> None:
    assert "\n" not in line("r.py\nconforms")
    assert indented("no\naggverify: conforms").split("\n")[1] == "    aggverify: conforms"


@pytest.mark.parametrize("text", ["##vso[task.x]y", "##[error]", "##teamcity[x]"])
def test_json_holds_no_command_and_reads_back_the_same(text: str) -> None:
    found = json_text({"event": text})
    assert "##" not in found
    assert json.loads(found) == {"event": text}
