"""Conventions written as adapters: read as data, never imported; which cells they open."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.conventions import Offer, convention
from aggverify.conventions.rows import RowForm
from aggverify.errors import InputError
from aggverify.run.planning.naming import canonical, own_names
from aggverify.run.planning.request import requested
from aggverify.run.planning.settings import CLAIMS, validated

CALL = "\n\ndef call(f, losses, batch):\n    return f(losses)\n"
ADAPTER = """
raise RuntimeError("read, not run")

ADAPTER = {
    "title": "Theirs",
    "function": "agg",
    "parameters": ["mat", "mask"],
    "engine": {"megatron-sample": ["sample_mean", "constant"], "mean": []},
    "rows": "padded",
    "side": "left",
    "modes": {"sample_mean": "seq", "token_mean": True, "prompt_mean": "group"},
    "never": {"prompt_mean": "it is told no groups"},
    "always_wrong": {"token_mean": "it counts for itself"},
    "not_claimed": {"context-parallel": "gathered before the loss"},
    "misuses": [{"call": "no mode", "with": {"mode": None}, "modes": ["sample_mean"]}],
    "notes": ["clipping is not exercised"],
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "theirs.py"
    path.write_text(ADAPTER + CALL)
    return str(path)


def test_call_takes_the_terms_that_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "theirs.py"
    path.write_text("ADAPTER = {'terms': ['kl']}\n\n\ndef call(f, losses, batch, kl): ...\n")
    how = convention(str(path))
    assert how.terms == ("kl",)  # type: ignore[attr-defined]
    assert how.signature == "any, through call(function, losses, batch, kl)"
    path.write_text(f"ADAPTER = {{'terms': ['kl']}}{CALL}")
    with pytest.raises(InputError, match=r"line 3: call takes \(function, losses, batch, kl\)"):
        convention(str(path))


def test_what_the_gradient_is_of_is_calls_second_parameter(tmp_path: Path) -> None:
    path = tmp_path / "theirs.py"
    given = "ADAPTER = {'gradient_of': 'logps'}\n\n\ndef call(f, logps, batch): ...\n"
    path.write_text(given)
    how = convention(str(path))
    assert how.signature == "any, through call(function, logps, batch)"
    path.write_text(given.replace("call(f, logps", "call(f, losses"))
    with pytest.raises(InputError, match=r"line 4: call takes \(function, logps, batch\)"):
        convention(str(path))
    path.write_text(given.replace("{'grad", "{'terms': ['kl'], 'grad"))
    with pytest.raises(InputError, match="gradient_of must be left out where there are terms"):
        convention(str(path))


def test_it_is_what_the_file_says(file: str) -> None:
    how = convention(file)
    assert (how.name, how.title, how.usual_name) == (file, "Theirs", "agg")
    assert how.signature == "def agg(mat, mask, ...)"
    assert how.mode_is_argument and how.fixes_engine
    offer = Offer("agg", ("mat", "eps", "mask"))
    assert how.recognises(offer)
    assert not how.recognises(Offer("agg", ("mask", "mat")))
    assert not how.recognises(Offer("agg", ("mat",)))
    assert how.modes(offer) == ("sample_mean", "token_mean")
    assert how.always_wrong == {"token_mean": "it counts for itself"}  # type: ignore[attr-defined]
    assert how.not_claimed == {"context-parallel": "gathered before the loss"}
    assert how.notes == ("clipping is not exercised",)
    assert how.rows == RowForm("padded", "left")  # type: ignore[attr-defined]
    [misuse] = how.misuses
    arguments = {"mode": "seq", "mat": 1}
    misuse.spoil(arguments)
    assert (misuse.sentence, arguments) == ("no mode", {"mode": None, "mat": 1})
    assert misuse.modes == ("sample_mean",)


def test_a_mode_goes_by_the_adapters_name_for_it(file: str) -> None:
    own = own_names(convention(file))
    assert own == {"seq": "sample_mean", "group": "prompt_mean"}
    assert canonical("seq", None, own) == (
        "sample_mean",
        ("seq is what the adapter calls sample_mean",),
    )
    assert canonical("token-mean", None, own) == canonical("token-mean")
    assert requested("x.py", {"adapter": file, "mode": ("seq",)}, {}).modes == ("seq",)
    with pytest.raises(InputError, match=r"unknown mode 'sek'; did you mean 'seq'"):
        requested("x.py", {"adapter": file, "mode": ("sek",)}, {})


def test_each_cell_has_its_reason(file: str) -> None:
    how = convention(file)
    assert how.default_engine("sample_mean") == "megatron-sample"
    assert how.default_engine("token_mean") == "mean"
    cells = {
        ("sample_mean", "megatron-sample"): None,
        ("sample_mean", "mean"): None,
        ("sample_mean", "ddp"): None,
        ("token_mean", "mine:ENGINE"): None,
        (None, "mean"): None,
        ("token_mean", "megatron-sample"): "token_mean works only with --engine mean",
        ("prompt_mean", "mean"): "it is told no groups",
        ("constant", "mean"): "it has no constant (it has sample_mean, token_mean)",
        ("token_mean", "sum"): "Theirs trains with megatron-sample or mean, not with sum",
    }
    assert {cell: how.why_not(*cell, frozenset()) for cell in cells} == cells


def test_little_need_be_said(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("ADAPTER = {}" + CALL)
    how = convention(str(tmp_path / "short.py"))
    assert (how.title, how.default_engine("token_mean"), how.fixes_engine) == (
        "short",
        "sum",
        False,
    )
    assert not how.mode_is_argument and not how.recognises(Offer("f", ("losses", "batch")))
    assert "prompt_mean" in how.modes(Offer("f", ()))
    assert how.why_not("prompt_mean", "mean", frozenset()) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ADAPTER = {", "is not Python"),
        ("X = 1" + CALL, "has no ADAPTER = {...}: it is no adapter"),
        ("ADAPTER = {}", "has no def call"),
        (
            "ADAPTER = {}\ndef call(f, losses):\n    return 1",
            "line 2: call takes (function, losses",
        ),
        ("ADAPTER = dict(engine='mean')" + CALL, "line 1: ADAPTER must be plain data"),
        ("ADAPTER = [1]" + CALL, "ADAPTER must be a dict of texts, got [1]"),
        ("ADAPTER = {'enigne': 'mean'}" + CALL, "did you mean 'engine'"),
        ("ADAPTER = {'engine': 3}" + CALL, "engine must be an engine, a list of them or a table"),
        ("ADAPTER = {'engine': 'maen'}" + CALL, "did you mean 'mean'"),
        ("ADAPTER = {'engine': 'my:E'}" + CALL, "yours: --engine module:OBJECT"),
        ("ADAPTER = {'engine': {'mean': ['token']}}" + CALL, "unknown mode 'token'"),
        (
            "ADAPTER = {'rows': 'square'}" + CALL,
            "rows must be flat or padded or whole or packed, got 'square'",
        ),
        ("ADAPTER = {'modes': ['token_mean']}" + CALL, "modes must be a table of mode"),
        ("ADAPTER = {'modes': {'tokenmean': 'x'}}" + CALL, "did you mean 'token_mean'"),
        ("ADAPTER = {'never': {'token_mean': 3}}" + CALL, "never must be a table of name: reason"),
        ("ADAPTER = {'not_claimed': {'fanout': 'x'}}" + CALL, "did you mean 'fan-out'"),
        ("ADAPTER = {'misuses': {'x': 1}}" + CALL, "misuses must be a list of {call: sentence"),
        ("ADAPTER = {'misuses': [{'call': 'x'}]}" + CALL, "misuses must be a list of {call:"),
        ("ADAPTER = {'title': 1}" + CALL, "title must be a text, got 1"),
        ("ADAPTER = {'notes': 'x'}" + CALL, "notes must be a list of texts, got 'x'"),
        ("#" * (1 << 19), "is larger than an adapter can be"),
        (None, "cannot read the adapter"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "theirs.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as error:
        convention(str(path))
    assert str(path) in str(error.value) and message in str(error.value)


def test_only_a_person_says_which_file() -> None:
    assert requested("r.py", {"adapter": "a.py"}, {"convention": "slime"}).called == "a.py"
    assert requested("r.py", {}, {"adapter": "a.py"}).called == "a.py"
    assert requested("r.py", {"convention": "slime"}, {"adapter": "a.py"}).called == "slime"
    with pytest.raises(InputError, match="give it or --convention"):
        requested("r.py", {"convention": "slime", "adapter": "a.py"}, {})
    with pytest.raises(InputError, match="--adapter must be a Python file, got 'verl'"):
        requested("r.py", {"adapter": "verl"}, {})
    with pytest.raises(InputError, match="name a file with --adapter"):
        validated("AGGVERIFY", {"convention": "a.py"}, CLAIMS)
    with pytest.raises(InputError, match="unknown key 'adapter'"):
        validated("AGGVERIFY", {"adapter": "a.py"}, CLAIMS)
