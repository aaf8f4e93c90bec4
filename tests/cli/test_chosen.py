"""What a person chooses of a run: checks, several targets, where a report goes; wrong names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from aggverify.cli import early
from aggverify.errors import InputError
from aggverify.run.planning.settings import KEYS
from aggverify.run.session import ENDED
from tests.conftest import EXAMPLES, ROOT, Cli

RIGHT = EXAMPLES / "native" / "sum" / "token_mean.py"
WRONG = EXAMPLES / "broken" / "micro_batch_token_mean.py"
LITTLE = ("--profile", "quick", "--world", "2", "--max-examples", "1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "ddpp"}, "unknown engine 'ddpp'; did you mean 'ddp'?"),
        ({"profile": "quik"}, "unknown profile 'quik'; did you mean 'quick'?"),
        ({"claim": ("poisn",)}, "unknown feature 'poisn'; did you mean 'poison'?"),
        ({"without": ("foo",)}, "unknown feature 'foo'"),
        ({"convention": "slim"}, "unknown convention 'slim'; did you mean 'slime'?"),
        ({"report": "json=-,htm"}, "unknown report format 'htm'; did you mean 'html'?"),
        ({"policy": {"empty_unit": "x"}}, "did you mean 'empty_units'?"),
        ({"policy": {"empty_units": "exclud"}}, "did you mean 'exclude'?"),
        ({"backend": "glo"}, "unknown backend 'glo'; did you mean 'gloo'?"),
        ({"color": "alway"}, "unknown color 'alway'; did you mean 'always'?"),
        ({"world": 9}, "--world must be between 1 and 8, got 9"),
        ({"mode": ("constant",)}, "--mode constant needs --divisor L"),
    ],
)
def test_a_wrong_name_is_refused_with_the_near_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.py").write_text("raise SystemExit('imported')\n")
    with pytest.raises(InputError) as refused:
        early.refuse(("r.py",), given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"engine": "my_module:ENGINE", "profile": "ci", "report": "json=-,html"},
        {"convention": "./mine.py", "mode": ("constant",), "divisor": 3.0},
        {"policy": {"group_size": "8"}, "claim": ("poison",), "mode": ("token-mean",)},
    ],
)
def test_what_may_be_right_is_left_to_what_knows_more(given: dict[str, object]) -> None:
    early.refuse(("r.py",), given)


def test_a_divisor_that_a_file_may_name_is_looked_up_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.py").write_text("AGGVERIFY = {'divisor': 3}\n")
    early.refuse(("r.py",), {"mode": ("constant",)})
    early.refuse(("package.module:reduce",), {"mode": ("constant",)})


@pytest.mark.thorough
def test_checks_are_chosen_and_a_run_ends_at_the_first_finding(cli: Cli, tmp_path: Path) -> None:
    only = ("--only", "weights_are_the_modes,counts_are_exact", "--skip", "counts_are_exact")
    ran = cli("check", RIGHT, RIGHT, *LITTLE, *only, "--report", "json=-")
    assert ran.code == 0, ran
    made = json.loads(ran.out)
    assert [[c["name"] for c in v["checks"]] for v in made["verdicts"]] == [
        ["weights_are_the_modes"]
    ] * 2
    assert "PASS  2 of 2 verdicts pass" in ran.err and "(--only, --skip)" in ran.err
    bad = cli("check", RIGHT, "--only", "weights_are_the_mode")
    assert bad.code == 2 and "did you mean 'weights_are_the_modes'" in bad.err, bad
    first = cli("check", WRONG, RIGHT, *LITTLE, "-x", "--report", "json")
    assert first.code == 1, first
    [verdict] = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())["verdicts"]
    states = [c["state"] for c in verdict["checks"]]
    assert states.count("failed") == 1
    left = [c for c in verdict["checks"] if c["reason"] == ENDED]
    assert left and all(c["spoiled"] for c in left)
    two = ("--mode", "sample_mean", "--mode", "prompt_mean")
    modes = cli("check", RIGHT, *two, *LITTLE, "-x", "--report", "json")
    assert modes.code == 1, modes
    made = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())
    assert len(made["verdicts"]) == 1, "the second mode is not run"
    waived = cli("check", WRONG, *LITTLE, "-x", "--accept", "AGV202=known", "--report", "json")
    assert waived.code == 1, "what is accepted does not end it"
    assert "FAIL  AGV20" in waived.out


@pytest.mark.parametrize(
    ("command", "shown", "other"),
    [
        (("engines", "mean"), "update = 1/(D*C) * sum grad f", "megatron"),
        (("modes", "token-mean"), "token_mean", "prompt_mean"),
        (("explain", "202"), "AGV202  ", "AGV203  "),
    ],
)
def test_one_name_is_one_entry(cli: Cli, command: tuple[str, str], shown: str, other: str) -> None:
    ran = cli(*command)
    assert ran.code == 0, ran
    assert shown in ran.out and other not in ran.out
    wrong = cli(command[0], "zzz")
    assert wrong.code == 2 and wrong.err.count("\n") == 1, wrong


def test_config_init_writes_every_setting_as_a_comment_and_nothing_twice(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    ran = cli("config", "init")
    assert ran.code == 0, ran
    text = (tmp_path / "pyproject.toml").read_text()
    assert tomllib.loads(text) == {"project": {"name": "a"}, "tool": {"aggverify": {}}}
    set_anew = re.sub(r"(?m)^# (\w+ = )", r"\1", text)
    assert set(tomllib.loads(set_anew)["tool"]["aggverify"]) == set(KEYS)
    again = cli("config", "init")
    assert again.code == 2 and "has [tool.aggverify] already" in again.err
    assert (tmp_path / "pyproject.toml").read_text() == text
    assert json.loads(cli("config", "schema").out)["title"] == "[tool.aggverify] in pyproject.toml"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell: str, tmp_path: Path) -> None:
    def said(**asked: str) -> str:
        command = [sys.executable, "-c", "import sys; sys.argv[0] = 'aggverify'; " + MAIN]
        ran = subprocess.run(
            command, env=os.environ | asked, capture_output=True, text=True, cwd=ROOT
        )
        return ran.stdout

    def complete(words: str, number: int) -> str:
        word = words.split()[-1] if shell == "fish" else str(number)
        asked = {"_AGGVERIFY_COMPLETE": f"{shell}_complete", "COMP_WORDS": words}
        return said(COMP_CWORD=word, **asked)

    source = f"_AGGVERIFY_COMPLETE={shell}_source aggverify"
    assert source in (ROOT / "docs" / "reference" / "options.md").read_text()
    assert f"_AGGVERIFY_COMPLETE={shell}_complete" in said(_AGGVERIFY_COMPLETE=f"{shell}_source")
    assert "compare" in complete("aggverify comp", 1)
    assert "--max-time" in complete("aggverify check --max-t", 2)


MAIN = "from aggverify.cli import main; main()"
