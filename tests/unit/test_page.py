"""The HTML page: tokens by rank, error over bound by size and dtype, light and dark, no script."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from msgspec.structs import replace

from aggverify.model import Document, Run, SizeMargin
from aggverify.report import html_page
from aggverify.report.plot import BOTTOM, TOP, margin_plot
from aggverify.run.outcome.statistics import RunStatistics
from tests import verdicts
from tests.unit.test_reports_hostile import HOSTILE, shape_of_html

RED = verdicts.written(verdicts.verdict(reports=1))
[VERDICT] = RED.verdicts
[MARGIN] = VERDICT.margins
SHARES = (SizeMargin(1, 0.25), SizeMargin(16, 0.5))


def with_sizes(text: str = "") -> str:
    document = verdicts.written(verdicts.verdict(text))
    [verdict] = document.verdicts
    margins = (replace(verdict.margins[0], by_size=SHARES),)
    return html_page.render(replace(document, verdicts=(replace(verdict, margins=margins),)))


def test_a_token_stands_in_the_row_of_the_rank_that_owns_it() -> None:
    text = html_page.render(RED)
    [label, table] = re.findall(
        r'<p class="sample">(.*?)</p>\n(<table>.*?</table>)', text, re.DOTALL
    )[0]
    assert label == "sample 0, prompt group 0"
    rows = [re.sub(r"<[^>]*>", " ", row).split() for row in table.split("<tr>")[1:]]
    assert rows == [
        ["token", "0", "1"],
        ["mask", "■", "■"],
        ["expected", "1/2", "1/2"],
        ["dp0", "cp0", "mb0", "1/4", "×", "1/2"],
        ["dp0", "cp1", "mb0", "1/2"],
    ]
    first, second = (row.count("<td") for row in table.split("<tr>")[4:6])
    assert first == second == 2, "a place for every token in every row"
    assert "weight  expected" not in text, "the table in text would show the same again"


def test_the_command_that_exports_is_one_line_where_a_case_is_run_again() -> None:
    [first] = VERDICT.findings
    again = f"{' '.join(first.replay)} --export DIR\n"
    assert html_page.render(RED).count(again) == 1
    found = replace(first, replay=("aggverify", "audit", "runs"))
    audited = replace(RED, verdicts=(replace(VERDICT, findings=(found,)),))
    assert "--export" not in html_page.render(audited)


def wide() -> Document:
    """With a sample of nine tokens, each of another weight."""
    [first] = VERDICT.findings
    sample = replace(first.step.samples[0], response_length=9, runs=(Run("unmasked", 0, 9),))
    step = replace(first.step, samples=(sample,))
    found = replace(
        first, step=step, expected=(Fraction(1, 9),) * 9, observed=tuple(n / 9 for n in range(9))
    )
    return replace(RED, verdicts=(replace(VERDICT, findings=(found,)),))


def test_many_tokens_are_tables_of_four_that_wrap() -> None:
    """Nothing is behind a sideways scroll on a phone."""
    text = html_page.render(wide())
    tables = re.findall(r"<table>.*?</table>", text, re.DOTALL)
    heads = [re.findall(r'<td class="token">(.*?)</td>', table) for table in tables]
    assert heads == [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8"]]
    assert all(table.count("<th>dp0 cp0 mb0</th>") == 1 for table in tables)
    assert 'class="heat"' in text and '<table class="grid">' in text
    assert re.findall(r"overflow-x: auto[^}]*}", text.partition("@media (max-width")[2]) == []


def test_of_several_modes_each_state_is_named_where_it_has_a_line_to_itself() -> None:
    several = replace(RED, verdicts=(VERDICT, VERDICT))
    mode = f'<span class="mode">{VERDICT.mode_name}: </span>'
    assert mode not in html_page.render(RED)
    assert html_page.render(several).count(mode) == 2 * len(VERDICT.checks)


def test_a_long_mask_is_counted_instead_of_drawn() -> None:
    assert html_page._squares(8, masked=True) == "□" * 8
    assert html_page._squares(9, masked=False) == "■ × 9"


def test_error_over_bound_is_drawn_by_size_and_dtype() -> None:
    other = replace(MARGIN, dtype="float32", by_size=(SizeMargin(16, 1.0),))
    plot = margin_plot((replace(MARGIN, by_size=SHARES), other))
    assert plot is not None
    assert [label for _, label in plot.across] == ["1", "16"]
    one, two = plot.lines
    assert [y for _, y, _ in one.dots] == [BOTTOM - 42.5, (BOTTOM + TOP) / 2]
    assert two.dots == ((one.dots[1][0], TOP, "float32, up to 16 tokens: 1.00"),)
    assert plot.bound == TOP
    assert margin_plot(()) is None


def test_a_page_has_both_schemes_a_plot_and_nothing_that_runs() -> None:
    text = with_sizes(HOSTILE)
    assert "prefers-color-scheme: dark" in text and "max-width: 40rem" in text
    assert text.count("<polyline") == 1 and text.count("<circle") == 2
    tags = shape_of_html(text)
    assert tags == shape_of_html(with_sizes("word"))
    assert not {"script", "link", "img", "iframe", "a", "object", "use"} & {tag[0] for tag in tags}
    drawn = {"viewbox", "role", "x", "x1", "x2", "y", "y1", "y2", "cx", "cy", "r", "points"}
    names = {name for tag in tags for name, _ in tag[1:] if tag[0] not in ("comment", "meta")}
    assert names <= {"class", "lang", "text-anchor", *drawn}


@pytest.mark.parametrize(("tokens", "size"), [(0, 1), (1, 1), (2, 4), (4, 4), (5, 16), (257, 1024)])
def test_sizes_are_powers_of_4(tokens: int, size: int) -> None:
    from aggverify.run.outcome.statistics import _power_of_4

    assert _power_of_4(tokens) == size
    assert RunStatistics().margins(verdicts.subject()) == ()


def test_the_source_is_marked_with_what_ran() -> None:
    rows = re.findall(
        r'<tr class="(\w*)"><td>(\d+)</td>.*?<td>([^<]*)</td></tr>', html_page.render(RED)
    )
    assert rows == [
        ("", "3", ""),
        ("partly", "4", "a: never true"),
        ("never", "5", "never ran"),
        ("alone", "6", "not on several ranks; one rank"),
    ]
    assert "<code>        b = a </code>" in html_page.render(RED)
