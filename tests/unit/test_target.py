"""Targets: what a person may write, and what they are told when it cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aggverify.errors import CandidateError, InputError, NotClaimable
from aggverify.run.planning.claims import completed, declaration, subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import choose, parse_target

BOTH = ["losses", "batch"]
NATIVE = {
    "offers": [{"name": "reduce", "parameters": BOTH, "required": BOTH}],
    "declared": None,
}
HOOK = {
    "offers": [
        {
            "name": "get_pg_loss_reducer",
            "parameters": [
                "total_lengths",
                "response_lengths",
                "loss_masks",
                "calculate_per_token_loss",
            ],
            "required": ["total_lengths", "response_lengths", "loss_masks"],
        }
    ],
    "declared": None,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.py"
    path.write_text("def reduce(losses, batch): ...\n")
    return path


def test_the_three_forms(file: Path) -> None:
    assert parse_target(str(file)).path == file
    named = parse_target(f"{file}:reduce")
    assert (named.path, named.name) == (file, "reduce")
    dotted = parse_target("package.module:name")
    assert (dotted.module, dotted.name, dotted.path) == ("package.module", "name", None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"def f(:\n", "syntax error in .*, line 1"),
        (b"\0", "syntax error|not Python source"),
    ],
)
def test_unusable_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "bad.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CandidateError, match=message):
        parse_target(str(path))


def test_other_unusable_targets(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match=r"cannot read .*directory"):
        parse_target(f"{tmp_path}/")
    text = tmp_path / "reducer.txt"
    text.write_text("x")
    with pytest.raises(CandidateError, match="not a Python file"):
        parse_target(str(text))
    with pytest.raises(CandidateError, match="not a target: 'a-b'"):
        parse_target("a-b")


def test_nothing_recognised_lists_both_sides(file: Path) -> None:
    description = {
        "offers": [{"name": "loss", "parameters": ["x"], "required": ["x"]}],
        "declared": None,
    }
    with pytest.raises(CandidateError) as error:
        choose(parse_target(str(file)), description, "auto")
    assert "loss(x)" in str(error.value)
    assert "def get_pg_loss_reducer(total_lengths" in str(error.value)


def test_several_reducers_ask_for_a_name(file: Path) -> None:
    offers = [{"name": n, "parameters": BOTH, "required": BOTH} for n in ("one", "two")]
    description = {"offers": offers, "declared": None}
    with pytest.raises(CandidateError, match=r"several reducers \(one, two\); choose one: .*:one"):
        choose(parse_target(str(file)), description, "auto")
    assert choose(parse_target(f"{file}:two"), description, "auto").function == "two"
    with pytest.raises(CandidateError, match="did you mean 'two'"):
        choose(parse_target(f"{file}:twoo"), description, "auto")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"mod": "token_mean"}, "did you mean 'mode'"),
        ("<object>", "must be a table of plain values"),
    ],
)
def test_bad_declarations(declared: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        declaration({"declared": declared})


def test_the_command_line_overrides_the_declaration(file: Path) -> None:
    description = NATIVE | {"declared": {"mode": "sample_mean", "engine": "mean"}}
    request = completed(Request(str(file), modes=("token_mean",)), description)
    assert (request.modes, request.engine) == (("token_mean",), "mean")


@pytest.mark.parametrize(
    ("changes", "description", "error", "message"),
    [
        ({"modes": ("token_men",)}, NATIVE, InputError, "did you mean 'token_mean'"),
        ({"modes": ("constant",)}, NATIVE, InputError, "needs --divisor"),
        ({"modes": ("constant",), "divisor": 0.0}, NATIVE, InputError, "got 0.0"),
        ({"modes": ("constant",), "divisor": -2.0}, NATIVE, InputError, "got -2.0"),
        ({"modes": ("constant",), "divisor": float("nan")}, NATIVE, InputError, "got nan"),
        ({"modes": ("constant",), "divisor": float("inf")}, NATIVE, InputError, "got inf"),
        ({"modes": ("token_mean",), "divisor": 4.0}, NATIVE, InputError, "belongs to --mode const"),
        ({"divisor": 4.0}, NATIVE, InputError, "belongs to --mode constant"),
        ({"policy": {"empty_unit": "count"}}, NATIVE, InputError, "did you mean 'empty_units'"),
        ({"policy": {"empty_units": "exclud"}}, NATIVE, InputError, "did you mean 'exclude'"),
        ({"engine": "summ"}, NATIVE, InputError, "did you mean 'sum'"),
        ({"claims": frozenset(["fanout"])}, NATIVE, InputError, "did you mean 'fan-out'"),
        ({"modes": ("token_mean_legacy",)}, NATIVE, NotClaimable, "has no step scalar"),
        ({"modes": ("prompt_mean",)}, HOOK, NotClaimable, "token totals of prompt groups"),
        (
            {"modes": ("token_mean",), "engine": "megatron-sample"},
            HOOK,
            NotClaimable,
            "only with --engine megatron-token",
        ),
        ({"modes": ("token_sum",)}, HOOK, NotClaimable, "no step totals"),
        ({"modes": ("sample_mean",), "engine": "sum"}, HOOK, NotClaimable, "train on Megatron"),
    ],
)
def test_refusals(
    file: Path,
    changes: dict[str, Any],
    description: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    request = Request(str(file), **changes)
    with pytest.raises(error, match=message):
        subjects(request, parse_target(str(file)), description)


def test_default_engines_per_mode(file: Path) -> None:
    target = parse_target(str(file))
    found = subjects(Request(str(file), modes=("sample_mean", "token_mean")), target, HOOK)
    assert [s.engine.name for s in found] == ["megatron-sample", "megatron-token"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "fast"}, "unknown profile 'fast'"),
        ({"max_world": 9}, "--world must be between 1 and 8, got 9"),
        ({"max_examples": 0}, "--max-examples must be at least 1, got 0"),
        ({"max_time": float("nan")}, "--max-time must be a positive number"),
    ],
)
def test_bad_requests(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Request("f.py", **changes)
