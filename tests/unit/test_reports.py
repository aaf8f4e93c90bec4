"""What the reports say: states, headline, heat map, places in the source, what fits."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec import structs

from aggverify.checks.paths import NAME as PATHS
from aggverify.errors import InputError
from aggverify.model import Document, Refusal
from aggverify.oracles import Sample, Step
from aggverify.report import findings, formats, github, html_page, markdown, text, view_model
from aggverify.report.document import stopped
from aggverify.report.findings import reported
from aggverify.report.formats import FORMATS
from aggverify.report.formatting import counted, drawing
from aggverify.report.outputs import ReportOutputs
from aggverify.report.source_locations import Place, place
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from tests import verdicts

RED, GREEN = verdicts.written(verdicts.verdict()), verdicts.written(verdicts.verdict(reports=0))
NOTHING = verdicts.written(verdicts.verdict(reports=0, executed=0))
VERDICT = RED.verdicts[0]
FINDING = VERDICT.findings[0]
ERROR = stopped((), InputError("no such file: r.py\nsee there"))


def test_junit_tells_failed_skipped_and_error_apart() -> None:
    suite = ElementTree.fromstring(FORMATS["junit"].render(RED))[0]
    states = {case.get("name"): [r.tag for r in case] for case in suite.iter("testcase")}
    assert states == {
        f"{verdicts.WEIGHTS}[token_mean]": [],
        f"{verdicts.CP}[token_mean]": ["failure"],
        f"{verdicts.LINEAR}[token_mean]": ["skipped"],
        f"{verdicts.SPLIT}[token_mean]": [],
    }
    failure = suite.find(".//failure")
    assert failure is not None and failure.text is not None
    assert failure.get("message") == "AGV201 Result depends on context-parallel size"
    assert "token 0 of sample 0 weighs 1/4 instead of 1/2: 2 times too little" in failure.text
    assert "Reproduce: aggverify replay " in failure.text


@pytest.mark.parametrize("document", [NOTHING, ERROR], ids=["nothing", "error"])
def test_no_judgement_is_an_error_everywhere(document: Document) -> None:
    root = ElementTree.fromstring(FORMATS["junit"].render(document))
    assert int(root.get("errors", 0)) > 0 == int(root.get("failures", 0))
    assert "### ❌" in markdown.render(document)
    assert '<h1 class="open">' in html_page.render(document), "not the colour of a failure"
    (line,) = github.commands(document, Path())
    assert line.startswith("::error")


def test_green_is_green_everywhere() -> None:
    root = ElementTree.fromstring(FORMATS["junit"].render(GREEN))
    assert (root.get("errors"), root.get("failures")) == ("0", "0")
    assert root[0].get("skipped") == "1"
    assert "### ✅ Conforms: token_mean, 3 checks passed, 1 warning" in markdown.render(GREEN)
    assert '<h1 class="good">' in html_page.render(GREEN)
    assert github.commands(GREEN, Path()) == []


def test_a_hazard_is_shown_in_full_and_is_no_failure() -> None:
    hazard = structs.replace(FINDING, effect="hazard")
    verdict = structs.replace(GREEN.verdicts[0], findings=(hazard,))
    document = structs.replace(GREEN, verdicts=(verdict,))
    named = "1 hazard (AGV201 Result depends on context-parallel size)"
    conforms = f"Conforms: token_mean, 3 checks passed, {named}, 1 warning"
    assert view_model.headline(document) == conforms
    told = text.render(document)
    assert "HAZARD  AGV201  Result depends on context-parallel size" in told
    assert "\nPASS  every token has its token_mean weight in every layout tried" in told
    assert f"### ✅ {conforms}" in markdown.render(document)
    assert "<summary>⚠️ AGV201" in markdown.render(document)
    assert '<h1 class="good">' in html_page.render(document)
    (line,) = github.commands(document, Path())
    assert line.startswith("::notice title=AGV201 ")
    # Beside a failure it comes last.
    both = structs.replace(
        RED,
        verdicts=(structs.replace(VERDICT, findings=(hazard, structs.replace(FINDING, id="b"))),),
    )
    assert [cause[0].fails for _, cause in view_model.every_cause(both)] == [True, False]
    assert "\nFAIL  1 finding · aggverify explain AGV201\n" in text.render(both)


def test_the_headline_states_the_consequence() -> None:
    what = "makes gradients cp_size times too small in token_mean"
    assert view_model.headline(RED) == (
        f"This reducer {what}: result depends on context-parallel size"
    )
    # Told no less than where it conforms: how much of the layouts was judged at all.
    declines = Refusal("context-parallel", "context parallelism", "cp_size == 1 only", False)
    partly = structs.replace(VERDICT, refused=(declines,), layouts_refused=3, layouts_left=5)
    assert view_model.headline(structs.replace(RED, verdicts=(partly,))) == (
        f"This reducer {what}: result depends on context-parallel size; refuses context "
        "parallelism: 'cp_size == 1 only' (3 layouts refused, 5 judged)"
    )
    two = verdicts.written(verdicts.verdict(reports=2))
    assert view_model.headline(two).endswith(" (1 more finding)")
    finding = structs.replace(FINDING, factor=None, off=None)
    assert view_model.consequence(finding, VERDICT).startswith(
        "makes some gradients 2 times too small in token_mean"
    )
    hangs = verdicts.written(verdicts.verdict(code="AGV402")).verdicts[0].findings[0]
    assert view_model.consequence(hangs, VERDICT) == "makes training hang (depends on cp_size)"


def test_the_bug_that_was_recognised_is_told() -> None:
    assert view_model.explanation(FINDING) == [
        ("Factor", "1/cp_size"),
        ("You compute", verdicts.BUG.sentence),
        ("In detail", "sum of "),
        ("Fix", verdicts.BUG.fix),
        ("Seen in", verdicts.BUG.seen),
        ("Matters", "cp_size (not dtype)"),
        ("Accept", f"--accept AGV201:{FINDING.signature}=REASON"),
    ]


def test_the_replay_command_can_be_pasted() -> None:
    (finding,) = verdicts.written(verdicts.verdict("; rm -r x")).verdicts[0].findings
    assert view_model.replay(finding).endswith(" 'r.py; rm -r x'")
    about = replace(verdicts.subject(), against=verdicts.subject(target="old one.py"))
    told = verdicts.report(about, code="AGV521", check=PATHS)
    paths = reported(told, told, about)
    assert view_model.replay(paths).endswith(" --against 'old one.py'")
    claim = replace(told.stored.claim, oracle="my mode.py")
    told = replace(told, stored=replace(told.stored, claim=claim, check=verdicts.CP))
    own = reported(told, told, about)
    assert view_model.replay(own).endswith(" r.py --oracle 'my mode.py'")


def test_markdown_leaves_whole_findings_out_and_counts_them() -> None:
    many = verdicts.written(verdicts.verdict("y" * 2400, reports=50))
    told = markdown.render(many)
    shown = told.count("<summary>❌")
    assert 10 < shown < 50
    checks = " and 1 list of checks"
    assert f"{50 - shown} findings{checks * (checks in told)} left out here" in told
    assert 50_000 < len(told.encode()) < 60_000
    assert told.count("<details>") == told.count("</details>") == shown + (checks not in told)
    assert told.startswith(f"{markdown.MARKER}\n")


def test_the_heat_map_shows_every_token_in_its_shade() -> None:
    ((label, cells),) = html_page.heat_map(FINDING.step, FINDING.weights, FINDING.token)
    assert label == "sample 0, prompt group 0"
    shown = [(c.tokens, c.expected, c.actual, c.times, c.shade, c.worst) for c in cells]
    assert shown == [
        ("0", "1/2", "1/4", "× 1/2", "low2", True),
        ("1", "1/2", "1/2", "", "same", False),
    ]


def test_a_heat_map_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_page, "MAX_CELLS", 1)
    (_, cells), (told, none) = html_page.heat_map(FINDING.step, FINDING.weights, FINDING.token)
    assert (len(cells), told, none) == (1, "the rest is in the case, not shown here", [])


def test_every_mode_has_its_column_suite_and_row() -> None:
    other = structs.replace(GREEN.verdicts[0], mode="sample_mean")
    both = structs.replace(RED, verdicts=(VERDICT, other))
    assert "<th>check</th><th>token_mean</th><th>sample_mean</th>" in html_page.render(both)
    suites = ElementTree.fromstring(FORMATS["junit"].render(both))
    names = ["r.py · reduce · token_mean", "r.py · reduce · sample_mean"]
    assert [suite.get("name") for suite in suites] == names
    row = "| <code>sample_mean</code> | <code>sum</code> | 0 | 3 ok, 1 not applicable | 1 |"
    assert row in markdown.render(both)


@pytest.mark.parametrize(
    ("expected", "actual", "shade"),
    [
        ("1", 1.1, "high1"), ("1", 64.0, "high4"), ("1", 0.01, "low4"), ("1", -1.0, "broken"),
        ("1", float("nan"), "broken"), ("0", float("inf"), "broken"), ("0", 1e-9, "broken"),
        ("0", 0.0, "none"), ("1", 0.0, "broken"),
    ],
)  # fmt: skip
def test_shades(expected: str, actual: float, shade: str) -> None:
    finding = structs.replace(FINDING, expected=(Fraction(expected),) * 2, observed=(actual,) * 2)
    ((_, cells),) = html_page.heat_map(finding.step, finding.weights, finding.token)
    assert cells[0].shade == shade


def test_at_most_ten_annotations_the_last_counts_the_rest() -> None:
    lines = github.commands(verdicts.written(verdicts.verdict(reports=12)), Path())
    assert len(lines) == 10
    assert lines[-1] == "::error::3 more findings: see the report"
    assert len(github.commands(verdicts.written(verdicts.verdict(reports=10)), Path())) == 10


SOURCE = """import torch
from there import elsewhere as borrowed

def helper():
    def reduce(): ...

if torch:
    @torch.no_grad()
    def reduce(losses, batch):
        return losses

made = reduce
"""


@pytest.mark.parametrize(
    ("name", "line"), [("reduce", 9), ("made", 12), ("borrowed", 2), ("nowhere", 1)]
)
def test_the_definition_is_found_in_the_text(tmp_path: Path, name: str, line: int) -> None:
    package = tmp_path / "src" / "mine"
    package.mkdir(parents=True)
    file = package / "r.py"
    file.write_text(SOURCE)
    for target in (str(file), f"{file}:{name}", f"mine.r:{name}"):
        assert place(target, name, tmp_path) == Place(file, line)
    assert place("not.there:f", name, tmp_path) is None
    assert place("no such file.py", name, tmp_path) is None


def test_an_annotation_stands_on_the_reducers_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "r.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path / "sub")
    (line,) = github.commands(RED, tmp_path)
    title = "AGV201 Result depends on context-parallel size"
    assert line.startswith(f"::error file=sub/r.py,line=9,title={title}::This reducer makes")
    (error,) = github.commands(ERROR, tmp_path, target="r.py")
    told = "::error file=sub/r.py,line=1,title=Could not judge::no such file: r.py%0Asee there"
    assert error == told


def test_unknown_formats_name_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown report format 'junt'; did you mean 'junit'"):
        formats.chosen(["json", "junt"])
    assert list(formats.chosen(["json", " md", "", "json"])) == ["json", "md"]


def test_every_format_lands_inside_the_directory(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    for each in FORMATS.values():
        (out / each.file).symlink_to(outside)
    assert ReportOutputs.to(out, FORMATS, github=False).deliver(RED, "r.py") == []
    paths = [out / each.file for each in FORMATS.values()]
    assert all(path.read_text() and not path.is_symlink() for path in paths)
    assert sorted(out.iterdir()) == sorted(paths)
    assert outside.read_text() == "mine"


def drawn(step: str, cells: str, cp: int) -> list[str]:
    found = parse_step(step)
    layout = Layout(parse_micro_batches(cells), cp)
    case = Case(found, layout, (1.0,) * found.num_response_tokens)
    return list(drawing(findings.drawn(case)))


def test_a_step_is_drawn_where_its_tokens_are() -> None:
    assert drawn("2/1011; 13/1", "1 | 0", cp=2) == [
        "step: 2 prompts, 2 rollouts, 2 samples; dp=2 cp=2 (zigzag) micro-batches=1 dtype=float64",
        "  sample 0  dp rank 1  cp ranks 0|1  micro-batch 0  prompt ··  mask #|.##  "
        "(prompt group 0, rollout 0)",
        "  sample 1  dp rank 0  cp rank 0  micro-batch 0  prompt ············…  mask #  "
        "(prompt group 1, rollout 1)",
        "  (# unmasked, . masked, | from one context-parallel rank to another)",
    ]


def test_what_was_rejected_is_drawn_apart() -> None:
    step = Step((Sample(1, b"\1\0\0", 0, 0, b"\1\1\0"),))
    case = Case(step, Layout.trivial(1), (1.0,) * 3)
    _, sample, legend = drawing(findings.drawn(case))
    assert "  mask #x.  " in sample
    assert legend == "  (# unmasked, . masked, x rejected after the fact)"


def test_what_is_plain_needs_no_legend_and_what_is_long_is_cut() -> None:
    _, line = drawn(f"1/{'1' * 70}", "0", cp=1)
    assert f"mask {'#' * 32}…{'#' * 16} (70 tokens)  (prompt" in line
    lines = drawn("; ".join(["1/1"] * 14), ",".join(map(str, range(14))), cp=1)
    assert len(lines) == 14
    assert lines[-1] == "  … and 2 more samples"


def test_a_mask_of_too_many_runs_is_told_in_part() -> None:
    step = Step((Sample(1, b"\1\0" * 600, 0, 0),))
    drawn = findings.drawn(Case(step, Layout.trivial(1), (1.0,) * 1200))
    (sample,) = drawn.samples
    assert (len(sample.runs), sample.response_length) == (findings.MAX_RUNS, 1200)
    (_, line, *_) = drawing(drawn)
    assert f"mask {'#.' * 16}… (1200 tokens)" in line


@pytest.mark.parametrize(
    ("n", "noun", "shown"),
    [
        (1, "list of checks", "1 list of checks"),
        (2, "list of checks", "2 lists of checks"),
        (0, "micro-batch", "0 micro-batches"),
        (1, "micro-batch", "1 micro-batch"),
        (3, "check", "3 checks"),
    ],
)
def test_nouns_have_their_plural(n: int, noun: str, shown: str) -> None:
    assert counted(n, noun) == shown
