"""What shells complete: asked as click's scripts ask, and by the shells that are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ASKED = (
    ("check --engine dd", ["ddp"]),
    ("check --mode token_s", ["token_sum"]),
    ("check --policy phantom", ["phantom_tokens=no", "phantom_tokens=yes"]),
    ("check --report json,ht", ["json,html"]),
    ("check --convention hf", ["hf-loss-func", "hf-trainer"]),
    ("check --claim data", ["data-parallel"]),
    ("check --mode token_mean --prof", ["--profile"]),
    ("engines fsdp1", ["fsdp1"]),
    ("modes sequence_m", ["sequence_mean"]),
    ("explain AGV21", ["AGV211", "AGV212", "AGV214", "AGV215", "AGV216"]),
    ("comp", ["compare"]),
)
SCRIPT = """#!{python}
import sys
from aggverify.__main__ import main
sys.argv[0] = "aggverify"
main()
"""
BASH = """\
eval "$(_AGGVERIFY_COMPLETE=bash_source aggverify)"
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_aggverify_completion aggverify
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """\
autoload -U compinit && compinit -u -D
eval "$(_AGGVERIFY_COMPLETE=zsh_source aggverify)"
[[ ${{_comps[aggverify]}} = _aggverify_completion ]] || exit 3
words=({words}) CURRENT=${{#words}}
compdef() {{ }}
_describe() {{ print -rl -- "${{(@)${{(P)3}}%%:*}}" }}  # what the menu would be given
compadd() {{ print -rl -- "${{(@P)${{@[-1]}}}}" }}
_aggverify_completion
"""
FISH = """\
_AGGVERIFY_COMPLETE=fish_source aggverify | source
for found in (complete -C "{words}")
    string split -m 1 -- \\t $found | head -n 1
end
"""


@pytest.fixture
def shells(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the command."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "aggverify"
    command.write_text(SCRIPT.format(python=sys.executable))
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path)}


def test_names_of_options_and_arguments(shells: dict[str, str]) -> None:
    for words, found in ASKED[::3]:
        asked = {
            "_AGGVERIFY_COMPLETE": "bash_complete",
            "COMP_WORDS": f"aggverify {words}",
            "COMP_CWORD": str(len(words.split())),
        }
        ran = subprocess.run(
            ["aggverify"], env=shells | asked, capture_output=True, text=True, check=True
        )
        assert sorted(ran.stdout.split()) == [f"plain,{name}" for name in found]


@pytest.mark.thorough
@pytest.mark.parametrize(("command", "script"), [("bash", BASH), ("zsh -f", ZSH), ("fish", FISH)])
def test_each_shell_completes(command: str, script: str, shells: dict[str, str]) -> None:
    shell = [*command.split(), "-c"]
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    for words, found in ASKED:
        if command == "fish" and "," in found[0]:
            continue  # click's script for it ends a value at a comma
        text = script.format(words=f"aggverify {words}")
        ran = subprocess.run([*shell, text], env=shells, capture_output=True, text=True, check=True)
        assert sorted(ran.stdout.split()) == found, ran.stderr
