"""What ``aggverify new`` tries, asks and writes, without ranks."""

from __future__ import annotations

import ast
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.conventions import Offer
from aggverify.conventions.adapter_claims import claims
from aggverify.conventions.adapter_draft import Adapter
from aggverify.conventions.adapter_forms import CallForms, CallHints
from aggverify.conventions.adapter_text import ImportSource, adapted
from aggverify.errors import InputError
from aggverify.oracles import MODES
from aggverify.run.planning.target import Target
from aggverify.scaffold import origin as came_from
from aggverify.scaffold.beginning import _inferred
from aggverify.scaffold.files import files
from aggverify.scaffold.probing import Probed
from aggverify.scaffold.questions import Question, no_answers, of_claims, of_parameters
from aggverify.scaffold.variants import MOST, fillings, forms, meant, other_readings


def offer(*parameters: str, name: str = "f") -> Offer:
    return Offer(name, parameters, parameters)


def test_losses_are_given_once_and_nothing_twice() -> None:
    found = list(fillings(offer("a", "b", "n"), CallHints()))
    said = [tuple(known.arguments[p] for p in "abn") for known in found]
    assert said[0] == ("{losses}", "{masks}", "batch.num_tokens")
    assert all(one.count("{losses}") == 1 and len(set(one)) == 3 for one in said)
    assert len(set(said)) == len(said) <= MOST
    assert all(known.found == {"a", "b", "n"} for known in found)


def test_what_names_say_is_not_guessed() -> None:
    found = list(fillings(offer("losses", "mask", "n"), CallHints()))
    assert all(set(known.arguments) == {"n"} for known in found)
    assert not {"{losses}", "{masks}"} & {known.arguments["n"] for known in found}


def test_a_parameter_for_the_mode_gets_names_of_modes() -> None:
    function = offer("losses", "mask", "reduction")
    found = list(fillings(function, CallHints()))
    assert '"seq-mean-token-mean"' in {known.arguments["reduction"] for known in found}
    assert {meant(function, known) for known in found} <= set(MODES)
    one = list(fillings(function, CallHints(mode="sample_mean")))
    assert {meant(function, known) for known in one} == {"sample_mean"}


def test_the_usual_form_is_first_and_every_one_is_python() -> None:
    tried = list(forms(CallHints()))
    assert (tried[0].shape, tried[0].first) == (None, False)
    assert {known.shape for known in tried} == {None, *CallForms}
    for known in tried:
        text = adapted(offer("losses", "mask", "advantages", "log_probs"), ImportSource("m"), known)
        ast.parse(text)
    assert [known.shape for known in forms(CallHints(shape=CallForms.FLAT))] == [CallForms.FLAT] * 2


def test_a_guessed_count_is_written_down_until_a_person_says_it() -> None:
    function, names = offer("losses", "mask", "num_seqs", "max_len"), CallHints(divisor=8.0)
    known = replace(names, instead={"num_seqs": "rows of the micro-batch"})
    text = adapted(function, ImportSource("m"), known)
    [assumed] = [
        ast.literal_eval(value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "assumed"
    ]
    assert assumed == {
        "num_seqs": "rollouts of the step, not rows of the micro-batch",
        "max_len": "fixed divisor",
    }
    said = replace(names, arguments={"num_seqs": "batch.num_rollouts", "max_len": "8.0"})
    assert "assumed" not in adapted(function, ImportSource("m"), said)
    called = replace(said, found=frozenset({"num_seqs"}))
    assert '"num_seqs": "batch.num_rollouts, found by calling it"' in adapted(
        function, ImportSource("m"), called
    )


def test_only_a_count_that_may_be_the_micro_batch_s_has_another_reading() -> None:
    function = offer("losses", "mask", "num_tokens", "num_seqs", "global_batch_size", "dp_size")
    found = other_readings(function, CallHints(arguments={"num_tokens": "7"}))
    [(parameter, known)] = found.items()
    assert parameter == "num_seqs"
    assert known.arguments == {"num_tokens": "7", "num_seqs": "len(batch.loss_masks)"}


def test_what_nobody_says_is_left() -> None:
    function, probed = offer("losses", "mask"), Probed(CallHints(), ran=True)
    assert of_claims(function, probed, no_answers).left == ("mode",)
    found = Probed(CallHints(), "token_mean", None, ("mean",), ran=True)
    known = of_claims(function, found, no_answers)
    assert (known.mode, known.left) == ("token_mean", ("engine",))
    text = adapted(function, ImportSource("m"), known)
    assert 'raise NotImplementedError("say below what ENGINE is' in text
    assert '"engine": ENGINE,' in text


@pytest.mark.parametrize(
    ("probed", "left"),
    [
        (Probed(CallHints(), "token_mean", engines=("mean", "sum"), ran=True), ()),
        (Probed(CallHints(), "sample_mean", engines=("mean",), ran=True), ("mode",)),
        (Probed(CallHints(), "token_mean", engines=("sum",), ran=True), ("engine",)),
        (Probed(CallHints(), ran=True), ("mode", "engine")),
        (Probed(CallHints(trouble="it raises")), ("mode", "engine")),
        (Probed(CallHints(mode="token_mean", engine="mean"), ran=True), ()),
    ],
)
def test_what_names_alone_say_is_left_until_a_call_confirms_it(
    probed: Probed, left: tuple[str, ...]
) -> None:
    told = Offer("f", ("losses", "mask", "loss_agg_mode", "dp_size"), ("losses", "mask"))
    assert claims(Adapter(told)) == {
        "mode": "token_mean",
        "engine": "mean",
        "without": ["context-parallel", "fan-out"],
    }
    known = of_claims(told, probed, no_answers)
    assert known.left == left
    text = adapted(told, ImportSource("theirs"), known)
    assert all(f'"{name}": {name.upper()},' in text for name in left)
    assert ('"mode": "token_mean"' in text or '"mode": LOSS_AGG_MODE' in text) is (
        "mode" not in left
    )


def test_what_a_person_says_is_written() -> None:
    asked: list[Question] = []

    def says(question: Question) -> str:
        asked.append(question)
        return {"mode": "token_mean", "engine": "mean", "odd": "batch.num_tokens"}[question.what]

    function = offer("losses", "mask", "odd")
    known = of_parameters(function, CallHints(), says)
    assert known.arguments == {"odd": "batch.num_tokens"}
    known = of_claims(function, Probed(known, engines=("mean", "skyrl-fsdp")), says)
    assert (known.mode, known.engine, known.left) == ("token_mean", "mean", ())
    assert "averages gradients over ranks" in asked[-1].text
    text = adapted(function, ImportSource("m"), known)
    assert "batch.num_tokens," in text and "NotImplementedError" not in text
    assert claims(Adapter(function, known)) == {
        "mode": "token_mean", "engine": "mean", "without": ["context-parallel", "fan-out"],
    }  # fmt: skip


def test_the_plain_sum_is_no_question() -> None:
    found = Probed(CallHints(), "token_mean", None, ("sum", "skyrl-fsdp"), ran=True)
    assert of_claims(offer("losses", "mask"), found, no_answers).left == ()


def test_a_call_that_comes_to_nothing_is_in_the_file_that_fails() -> None:
    known = CallHints(trouble='rank 0: KeyError: "x"\\')
    text = adapted(offer("losses", "mask"), ImportSource("m"), known)
    [line] = [line for line in text.splitlines() if line.startswith("raise ")]
    with pytest.raises(NotImplementedError, match=r'no result: rank 0: KeyError: "x"'):
        exec(line)


def test_files_lie_beside_the_target_and_the_workflow_in_the_root(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "my pkg").mkdir()
    path = tmp_path / "my pkg" / "loss.py"
    path.write_text("")
    target = Target(str(path), path, None, None)
    made = files(target, "Thing.f", adapter="adapter\n")
    assert [str(p.relative_to(tmp_path)) for p in made.texts] == [
        "my pkg/aggverify_Thing_f.py",
        "my pkg/test_aggverify_Thing_f.py",
        ".github/workflows/aggverify_Thing_f.yml",
    ]
    assert made.command == "aggverify check 'my pkg/aggverify_Thing_f.py'"
    _, test, workflow = made.texts.values()
    ast.parse(test)
    [run] = [x for x in workflow.splitlines() if "run: " in x and "aggverify check" in x]
    said = json.loads(run.partition("run: ")[2])  # what JSON quotes, YAML does too
    assert said == f"{made.command} --github --report json,md,html"
    made.write()
    assert path.with_name("aggverify_Thing_f.py").read_text() == "adapter\n"
    with pytest.raises(InputError, match="nothing was written; delete or rename first"):
        made.write()


def test_nothing_is_written_where_one_is_there(tmp_path: Path) -> None:
    path = tmp_path / "loss.py"
    made = files(Target(str(path), path, None, "f"), "f", options={"modes": ["token_mean"]})
    there = tmp_path / ".github" / "workflows" / "aggverify_f.yml"
    there.parent.mkdir(parents=True)
    there.symlink_to("nowhere")
    with pytest.raises(InputError, match=r"delete or rename first: .*aggverify_f\.yml"):
        made.write()
    assert not (tmp_path / "test_aggverify_f.py").exists()


def test_a_function_that_needs_no_adapter_is_named_with_its_options(tmp_path: Path) -> None:
    path = tmp_path / "loss.py"
    target = Target(str(path), path, None, "f")
    options = {"modes": ["token_mean", "constant"], "divisor": 2.0}
    made = files(target, "f", options=options, left=("engine",))
    assert made.command == (
        "aggverify check loss.py:f --mode token_mean --mode constant --divisor 2.0 --engine ENGINE"
    )
    test, _ = made.texts.values()
    assert 'raise NotImplementedError("say below what ENGINE is' in test
    assert 'modes=["token_mean", "constant"], divisor=2.0, engine=ENGINE)' in test
    dotted = files(Target("pkg.loss:f", None, "pkg.loss", "f"), "f", options=options)
    assert 'aggverify.conformance("pkg.loss:f", modes=' in next(iter(dotted.texts.values()))


def test_of_several_modes_it_is_told_what_each_makes_of_what_is_left() -> None:
    function = offer("a", "b", "n")
    alike = {"a": "{losses}", "b": "{masks}"}
    each = {
        mode: Probed(CallHints({**alike, "n": n}, frozenset("abn")), mode, ran=True)
        for mode, n in (("token_mean", "batch.num_tokens"), ("constant", "16.0"))
    }
    agreed = CallHints(alike, frozenset("ab"))
    told = list(_inferred(function, Probed(agreed, ran=True, among=each), agreed))
    assert "  --mode token_mean means n = batch.num_tokens" in told
    assert "  --mode constant means n = 16.0" in told


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("https://example.org/a/aggverify.git", "git+https://example.org/a/aggverify.git@"),
        ("git@example.org:a/aggverify.git", "git+https://example.org/a/aggverify.git@"),
        ("ssh://git@example.org/a/aggverify", "git+https://example.org/a/aggverify@"),
        ("https://me:token@example.org/a/b", "'aggverify @ git+https://example.org/a/b@"),
        (None, "aggverify==0."),
    ],
)
def test_a_clone_is_installed_from_where_it_was_cloned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None, expected: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str:
            return json.dumps({"url": tmp_path.as_uri(), "dir_info": {}})

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    git("init", "-q")
    git(*who, "commit", "-q", "--allow-empty", "-m", "first")
    if origin is not None:
        git("remote", "add", "origin", origin)
    monkeypatch.setattr(came_from, "distribution", lambda name: Installed())
    assert expected in came_from.requirement()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/a/aggverify.git", "https://raw.githubusercontent.com/a/aggverify/c0/"),
        ("https://github.com/a/b", "https://raw.githubusercontent.com/a/b/c0/"),
        ("https://example.org/a/b.git", "file:///"),
        ("https://github.com/a", "file:///"),
    ],
)
def test_the_schema_for_editors_has_the_address_of_its_commit(
    monkeypatch: pytest.MonkeyPatch, url: str, expected: str
) -> None:
    monkeypatch.setattr(came_from, "origin", lambda: came_from.Origin("git", url, "c0"))
    found = came_from.schema_url()
    assert found.startswith(expected) and found.endswith("aggverify/schema/pyproject.json")
    if expected == "file:///":
        assert json.loads(Path(found.removeprefix("file://")).read_text())["$id"]


@pytest.mark.parametrize(
    ("name", "text", "installs"),
    [
        ("pyproject.toml", "[project]\nname = 'a'\n", True),
        ("pyproject.toml", "[build-system]\nrequires = ['poetry-core']\n", True),
        ("setup.py", "from setuptools import setup\n", True),
        ("pyproject.toml", "[tool.aggverify]\nworld = 2\n", False),
        ("pyproject.toml", "[project", False),
        ("other.toml", "", False),
    ],
)
def test_a_workflow_installs_what_is_a_package(
    tmp_path: Path, name: str, text: str, installs: bool
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / ".git").mkdir()
    path = tmp_path / "loss.py"
    *_, workflow = files(Target(str(path), path, None, "f"), "f").texts.values()
    assert ("whl/cpu ." in workflow) == installs
