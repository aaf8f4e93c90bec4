"""How each kind of block of a document is run, by sybil, in one folder a document.

``console``: commands behind ``$ `` are run, and print what follows, where ``...`` stands for any
text; a comment ``# exit code N`` behind a command names another code than 0. ``python``, ``toml``,
``yaml`` and ``json`` that begin with the comment ``# PATH`` become that file. Other Python is run,
other data is read. ``sh`` is what cannot be run here (other packages, other machines): its lines
are parsed by bash, and each aggverify command by the command line itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import yaml
from sybil import Document, Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

from tests.conftest import ROOT
from tests.quality.command_lines import commands_of, parse
from tests.schemas import validator

LANGUAGES = ("console", "python", "toml", "yaml", "json", "sh")
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|yml|yaml|json|md))(?:\s.*)?\n")
_EXIT = re.compile(r"#.*\bexit code (\d+)")
_VARIES = (
    (re.compile(r"\d+(?:\.\d+)? s\b"), "N s"),
    (re.compile(r" +\n"), "\n"),
)


def parsed(path: Path) -> Document:
    """Its blocks, ready to be run one after another."""
    run = {"console": console, "python": python, "sh": commands_parse}
    run |= {"toml": read_toml, "yaml": read_yaml, "json": read_json}
    return Sybil([CodeBlockParser(name, run[name]) for name in LANGUAGES]).parse(path)


def console(example: Example) -> str | None:
    """Each command, its exit code and what it prints."""
    folder = example.namespace["folder"]
    for command, expected in transcript(str(example.parsed)):
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
        )
        code = int(found[1]) if (found := _EXIT.search(command)) else 0
        out = ran.stdout + ran.stderr
        if ran.returncode != code:
            return f"$ {command}\nexit code {ran.returncode}, not {code}:\n{out}"
        if expected.strip() and not matches(expected, out):
            return f"$ {command}\nprints\n{out}\nwhere the document has\n{expected}"
    return None


def transcript(text: str) -> Iterator[tuple[str, str]]:
    """Commands with what is printed after each; a line that ends in a backslash goes on."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in pairwise([*starts, len(lines)]):
        last = start
        while lines[last].endswith("\\"):
            last += 1
        command = "\n".join(lines[start : last + 1])[2:]
        yield command, "\n".join(lines[last + 1 : end])


def matches(expected: str, out: str) -> bool:
    """Whether it is what was printed; times vary, and ``...`` stands for anything."""
    for pattern, instead in _VARIES:
        expected, out = (pattern.sub(instead, f"{text.strip()}\n") for text in (expected, out))
    wanted = ".*?".join(re.escape(part.strip("\n")) for part in expected.strip().split("..."))
    return re.fullmatch(rf"\s*{wanted}\s*", out, re.DOTALL) is not None


def environment(folder: Path) -> dict[str, str]:
    """A person's, in a terminal of 100 columns."""
    name = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("EMAIL",)}
    name |= {"GIT_AUTHOR_NAME": "A", "GIT_COMMITTER_NAME": "A", "GIT_CONFIG_GLOBAL": "/dev/null"}
    kept = {k: os.environ[k] for k in ("LANG", "TMPDIR") if k in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return name | kept | {"PATH": path, "HOME": str(folder), "COLUMNS": "100", "NO_COLOR": "1"}


def python(example: Example) -> None:
    """A file, or statements that share the document's names."""
    text = str(example.parsed)
    code = compile(text, f"{example.path}:{example.line}", "exec")
    if not is_written(example.namespace["folder"], text):
        with contextlib.chdir(example.namespace["folder"]):
            exec(code, example.namespace)


def read_json(example: Example) -> None:
    """It can be read."""
    text = str(example.parsed)
    is_written(example.namespace["folder"], text)
    json.loads(_FILE.sub("", text))


def read_toml(example: Example) -> None:
    """It can be read, and settings fit their schema."""
    text = str(example.parsed)
    is_written(example.namespace["folder"], text)
    settings = tomllib.loads(text).get("tool", {}).get("aggverify", {})
    validator("settings.json").validate(settings)


def read_yaml(example: Example) -> None:
    """It can be read, and a workflow gives our action the inputs that it has."""
    text = str(example.parsed)
    is_written(example.namespace["folder"], text)
    inputs = set(yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["inputs"])
    for job in yaml.safe_load(text).get("jobs", {}).values():
        for step in job["steps"]:
            if "aggverify@" in step.get("uses", ""):
                assert set(step.get("with", {})) <= inputs, step


def is_written(folder: Path, text: str) -> bool:
    """Whether the block is a file, which then lies in the folder."""
    if (found := _FILE.match(text)) is None:
        return False
    path = folder / found[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if path.suffix != ".json" else text[found.end() :], encoding="utf-8")
    return True


def commands_parse(example: Example) -> None:
    """Bash parses the block, and the command line each of its aggverify commands."""
    text = str(example.parsed)
    subprocess.run(["bash", "-n", "-c", text], check=True)
    for command in commands_of(text):
        parse(command)
