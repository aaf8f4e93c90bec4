"""Targets: what a person may write, and what they are told when it cannot be used."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from aggverify.conventions import CONVENTIONS
from aggverify.errors import CandidateError, InputError, NoReducer, NotClaimable
from aggverify.run.planning.choosing import choose
from aggverify.run.planning.claims import completed, declaration, subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import dotted_instead, origin, parse_target

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


def test_other_unusable_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CandidateError, match=r"cannot read .*directory"):
        parse_target(f"{tmp_path}/")
    text = tmp_path / "reducer.txt"
    text.write_text("x")
    with pytest.raises(CandidateError, match="not a Python file"):
        parse_target(str(text))
    notebook = tmp_path / "nb.ipynb"
    notebook.write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CandidateError, match=r"not a Python file: nb\.ipynb"):
        parse_target("nb.ipynb")
    with pytest.raises(CandidateError, match="not a target: 'a-b'"):
        parse_target("a-b")


def test_nothing_recognised_names_what_is_there_and_the_simplest_signature(file: Path) -> None:
    description = {
        "offers": [{"name": "loss", "parameters": ["config"], "required": ["config"]}],
        "declared": None,
    }
    with pytest.raises(NoReducer) as error:
        choose(parse_target(str(file)), description, "auto")
    assert "loss(config)" in str(error.value)
    assert error.value.adapter == ""
    assert "def reduce(losses: Tensor" in str(error.value)
    assert f"`aggverify conventions` lists all {len(CONVENTIONS)}" in str(error.value)


def test_an_adapter_comes_with_how_to_save_it(tmp_path: Path) -> None:
    file = tmp_path / "my losses.py"
    file.touch()
    with pytest.raises(NoReducer) as error:
        chosen(str(file), offer("agg_loss", "loss_mat", "loss_mask"))
    saved = f"{tmp_path}/aggverify_agg_loss.py"
    assert f"    aggverify check '{file}:agg_loss' > {saved}\n" in str(error.value)
    assert str(error.value).endswith(f"    aggverify check {saved}")
    assert "with_name('my losses.py')" in error.value.adapter
    assert "return agg_loss(" in error.value.adapter
    with pytest.raises(NoReducer) as error:
        chosen("package.module", offer("agg_loss", "loss_mat", "loss_mask"))
    assert str(error.value).endswith("    aggverify check aggverify_agg_loss.py")
    assert "from package.module import agg_loss" in error.value.adapter


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        ({"modes": ("dapo",), "engine": "mean"}, {"mode": "token_mean", "engine": "mean"}),
        ({"modes": ("constant",), "divisor": 8.0}, {"mode": "constant", "divisor": 8.0}),
        ({"modes": ("token_mean", "sample_mean")}, {}),
    ],
)
def test_an_adapter_declares_what_options_do(
    tmp_path: Path, given: dict[str, Any], declared: dict[str, object]
) -> None:
    file = tmp_path / "losses.py"
    file.touch()
    request = Request(str(file), **given)
    with pytest.raises(NoReducer) as error:
        subjects(request, parse_target(str(file)), {"offers": [offer("f", "loss_mat", "mask")]})
    about = error.value.adapter.partition("AGGVERIFY = ")[2].partition("\n}")[0] + "\n}"
    found = ast.literal_eval(about)
    assert {key: value for key, value in found.items() if key != "without"} == declared


@pytest.mark.parametrize("stem", ["types", "torch", "class", "1st"])
def test_a_file_named_as_something_else_is_imported_by_its_place(tmp_path: Path, stem: str) -> None:
    file = tmp_path / f"{stem}.py"
    file.touch()
    assert origin(parse_target(str(file))).module is None


def offer(name: str, *parameters: str, **more: Any) -> dict[str, Any]:
    parameters = parameters or ("losses", "batch")
    return {"name": name, "parameters": parameters, "required": parameters, **more}


def chosen(text: str, *offers: dict[str, Any], how: str = "auto") -> str:
    return choose(parse_target(text), {"offers": offers}, how).function


def test_several_reducers_ask_for_a_name(file: Path) -> None:
    offers = (offer("one"), offer("two"))
    with pytest.raises(CandidateError) as error:
        chosen(str(file), *offers)
    assert f"    {file}:one  one(losses, batch)  (native)\n" in str(error.value)
    assert f"    {file}:two  two(losses, batch)  (native)" in str(error.value)
    assert chosen(f"{file}:two", *offers) == "two"
    with pytest.raises(CandidateError, match="has no 'twoo'; did you mean 'two'"):
        chosen(f"{file}:twoo", *offers)


def test_functions_of_the_file_go_first_and_then_the_usual_name(file: Path) -> None:
    helper = offer("padded", own=False)
    assert chosen(str(file), helper, offer("mine")) == "mine"
    assert chosen(str(file), offer("mine"), offer("reduce")) == "reduce"
    assert chosen(str(file), offer("reduce", own=False), offer("mine")) == "mine"
    assert chosen(str(file), helper) == "padded"
    assert chosen(str(file), helper, offer("reduce", own=False)) == "reduce"
    hook = offer("get_pg_loss_reducer", *HOOK["offers"][0]["parameters"])
    assert chosen(str(file), hook, offer("fast_hook", *hook["parameters"])) == hook["name"]
    with pytest.raises(CandidateError, match=r"several reducers(.|\n)*slime(.|\n)*native"):
        chosen(str(file), hook, offer("reduce"))


def test_a_helper_is_not_taken_for_the_file_s_own_function(file: Path) -> None:
    with pytest.raises(CandidateError) as error:
        chosen(str(file), offer("padded", own=False), offer("mine", "x", "mask"))
    assert "it defines\n    mine(x, mask)" in str(error.value)
    assert "it imports\n    padded(losses, batch)" in str(error.value)


def test_what_is_named_is_taken_where_it_takes_two_arguments(file: Path) -> None:
    assert chosen(f"{file}:f", offer("f", "x", "b")) == "f"
    assert chosen(f"{file}:f", offer("f", "*args", "**kwargs", required=())) == "f"
    assert chosen(f"{file}:f", offer("f", "x", "b", "n", required=("x", "b"))) == "f"
    for other in (offer("f", "x"), offer("f", "x", "mask"), offer("f", "x", "y", "z")):
        with pytest.raises(CandidateError, match="no reducer in"):
            chosen(f"{file}:f", other)
        assert chosen(f"{file}:f", other, how="native") == "f"
    with pytest.raises(CandidateError, match=r"if f takes losses and batch: aggverify check .*:f"):
        chosen(str(file), offer("f", "x", "b"))


def test_what_cannot_be_called_says_why(file: Path) -> None:
    sleeper = offer("f", why_not="is an async function: a call gives a coroutine and no loss")
    with pytest.raises(CandidateError, match=r"r\.py:f is an async function"):
        chosen(f"{file}:f", sleeper)
    with pytest.raises(CandidateError, match=r"f\(losses, batch\): is an async function") as error:
        chosen(str(file), sleeper)
    assert "accepted" not in str(error.value)
    only = offer("reduce", "losses", "batch", "kl", keyword_only=("kl",))
    with pytest.raises(CandidateError, match="keyword-only without a default: kl"):
        chosen(str(file), only)
    with pytest.raises(CandidateError, match="has no 'reduce', and defines no function itself"):
        chosen(f"{file}:reduce", offer("where", "c", "x", "y", own=False))


def test_a_relative_import_is_answered_with_the_dotted_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "src" / "pkg" / "loss" / "r.py"
    file.parent.mkdir(parents=True)
    file.write_text("from ..core import total\n")
    monkeypatch.chdir(tmp_path)
    # Without an __init__.py the dots alone say where the package begins.
    assert dotted_instead(file, None) == "PYTHONPATH=src aggverify check pkg.loss.r"
    for folder in (file.parent, file.parent.parent):
        (folder / "__init__.py").touch()
    assert dotted_instead(file, "f") == "PYTHONPATH=src aggverify check pkg.loss.r:f"
    monkeypatch.chdir(tmp_path / "src")
    assert dotted_instead(file, "f") == "aggverify check pkg.loss.r:f"
    monkeypatch.chdir(file.parent)
    assert dotted_instead(file, "f") == f"PYTHONPATH={tmp_path}/src aggverify check pkg.loss.r:f"
    file.write_text("import core\n")
    assert dotted_instead(file, None) is None


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


LEGACY_OF_2: dict[str, Any] = {"modes": ("token_mean_legacy",), "micro_batch_size": 2}


@pytest.mark.parametrize(
    ("changes", "description", "error", "message"),
    [
        ({"modes": ("token_men",)}, NATIVE, InputError, "did you mean 'token_mean'"),
        ({"modes": ("constant",)}, NATIVE, InputError, "needs --divisor"),
        ({"modes": ("constant",), "divisor": 0.0}, NATIVE, InputError, "got 0.0"),
        ({"modes": ("constant",), "divisor": -2.0}, NATIVE, InputError, "got -2.0"),
        ({"modes": ("token_mean",), "divisor": 4.0}, NATIVE, InputError, "belongs to --mode const"),
        ({"divisor": 4.0}, NATIVE, InputError, "belongs to --mode constant"),
        ({"policy": {"empty_unit": "count"}}, NATIVE, InputError, "did you mean 'empty_units'"),
        ({"policy": {"empty_units": "exclud"}}, NATIVE, InputError, "did you mean 'exclude'"),
        ({"engine": "summ"}, NATIVE, InputError, "did you mean 'sum'"),
        ({"claims": frozenset(["fanout"])}, NATIVE, InputError, "did you mean 'fan-out'"),
        ({"modes": ("token_mean_legacy",)}, NATIVE, NotClaimable, "with --micro-batch-size B"),
        (LEGACY_OF_2, NATIVE, InputError, "token_mean_legacy needs --engine"),
        (LEGACY_OF_2 | {"engine": "mean", "group_size": 2}, NATIVE, InputError, "whole groups"),
        ({"modes": ("token_mean",), "micro_batch_size": 2}, NATIVE, InputError, "belongs to --mod"),
        ({"micro_batch_size": 2}, NATIVE, InputError, "but the mode is no mode"),
        ({"modes": ("token_mean_legacy(0)",)}, NATIVE, InputError, "a whole number from 1"),
        ({"modes": ("bnpo",)}, NATIVE, NotClaimable, "TRL's bnpo is token_mean_legacy, which aver"),
        ({"modes": ("seq-mean-token-sum-norm",)}, NATIVE, InputError, "constant needs --divisor"),
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


@pytest.mark.parametrize(
    ("said", "mode", "note"),
    [
        ("seq-mean-token-mean", "sample_mean", "verl's and ROLL's seq-mean-token-mean is sample"),
        ("sequence_mean", "sample_mean", "SkyRL's sequence_mean is sample_mean"),
        ("dapo", "token_mean", "TRL's dapo is token_mean (the DAPO paper prints prompt_mean)"),
        ("token_mean", "token_mean", ""),
    ],
)
def test_a_framework_s_name_of_a_mode_is_taken(file: Path, said: str, mode: str, note: str) -> None:
    target = parse_target(str(file))
    for request in (
        Request(str(file), modes=(said,)),
        completed(Request(str(file)), NATIVE | {"declared": {"mode": said}}),
        completed(Request(str(file), settings={"mode": said}), NATIVE),
    ):
        [subject] = subjects(request, target, NATIVE)
        assert subject.mode == mode
        assert [n[: len(note)] for n in subject.notes] == [note] * bool(note)


def test_two_names_of_one_mode_are_one(file: Path) -> None:
    request = Request(str(file), modes=("token-mean", "token_mean"))
    assert len(subjects(request, parse_target(str(file)), NATIVE)) == 1
    divided = Request(str(file), modes=("dr_grpo",), divisor=4.0)
    [subject] = subjects(divided, parse_target(str(file)), NATIVE)
    assert (subject.mode, subject.divisor) == ("constant", 4.0)


def test_default_engines_per_mode(file: Path) -> None:
    target = parse_target(str(file))
    found = subjects(Request(str(file), modes=("sample_mean", "token_mean")), target, HOOK)
    assert [s.engine.name for s in found] == ["megatron-sample", "megatron-token"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "fast"}, "unknown profile 'fast'"),
        ({"max_world": 9}, "--world must be between 1 and 8, got 9"),
        ({"max_examples": 0}, "--max-examples must be between 1 and 1000000000, got 0"),
        ({"max_time": float("nan")}, "--max-time must be a finite number, got nan"),
        ({"max_time": 0.0}, "--max-time must be more than 0, got 0.0"),
        ({"divisor": float("nan")}, "--divisor must be a finite number, got nan"),
        ({"divisor": float("inf")}, "--divisor must be a finite number, got inf"),
        ({"divisor": 10**5000}, "--divisor must be a finite number, got something of type int"),
        ({"seed": 10**5000}, "--seed must fit into 64 bits, got something of type int"),
        ({"modes": ("token_mean",) * 200}, "--mode must be at most 100, got 200"),
    ],
)
def test_bad_requests(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Request("f.py", **changes)


BOTH = (
    *("loss_mat", "loss_mask", "loss_agg_mode", "dp_size", "batch_num_tokens"),
    *("global_batch_size", "loss_scale_factor", "global_valid_samples"),
)
METHOD = {"why_not": "is a method and needs an object"}


def test_what_fits_two_conventions_is_neither_s(file: Path) -> None:
    for text in (str(file), f"{file}:agg_loss"):
        with pytest.raises(CandidateError) as error:
            chosen(text, offer("agg_loss", *BOTH))
        assert "has the shape of roll (ROLL) and of verl (verl): say which" in str(error.value)
        assert str(error.value).endswith("--convention roll or --convention verl")
    assert chosen(f"{file}:agg_loss", offer("agg_loss", *BOTH), how="verl") == "agg_loss"


def test_a_method_is_recognised_by_its_name_too(file: Path) -> None:
    name, taken = "GRPOTrainer._compute_loss", ("self", "model", "inputs")
    found = choose(
        parse_target(f"{file}:{name}"), {"offers": [offer(name, *taken, **METHOD)]}, "auto"
    )
    assert found.convention.name == "trl"
    with pytest.raises(CandidateError, match="is a method and needs an object"):
        chosen(
            f"{file}:SFTTrainer.compute_loss", offer("SFTTrainer.compute_loss", *taken, **METHOD)
        )
