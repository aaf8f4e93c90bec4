"""What GitHub's runner makes of a workflow, here: its steps, actions, expressions and outputs.

Of actions, those that our workflows use: a checkout is there already, Python is the job's own, an
upload is kept by its name; this project's runs as its ``action.yml`` has it. Everything else is
refused.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_SHELLS = {None: ("bash", "-e"), "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail")}


@dataclass(slots=True)
class Runner:
    """One job's: the folder of its checkout, a folder of its own, and what is known of the run."""

    workspace: Path
    own: Path
    environment: Mapping[str, str]
    """With the job's Python in ``PATH``."""
    github: Mapping[str, Any]
    ran: list[str] = field(default_factory=list)
    """Scripts, in order; and actions by their names."""
    printed: str = ""
    uploads: dict[str, list[str]] = field(default_factory=dict)
    """Files by the name of the artifact."""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of the job's steps that have an id or are an action, by that."""

    def job(self, workflow: str) -> bool:
        """Run its one job; whether it is green."""
        read = yaml.safe_load(workflow)
        on = read[True]  # what YAML takes "on" for
        assert self.github["event_name"] in ([on] if isinstance(on, str) else on), on
        [(name, job)] = read["jobs"].items()
        known = {"github": {**self.github, "job": name}, "strategy": {"job-index": 0}}
        return self._steps(job["steps"], known, self.environment)

    def _steps(
        self, steps: list[dict[str, Any]], known: dict[str, Any], given: Mapping[str, str]
    ) -> bool:
        green, outputs = True, dict[str, Any]()
        for number, step in enumerate(steps):
            if not (green if "if" not in step else self._holds(step["if"], known, green=green)):
                continue
            name = step.get("id", f"__{number}")
            inner = known | {"steps": outputs}
            if "uses" in step:
                done = self._action(step, name, inner, given)
            else:
                done, told = self._run(step, inner, given)
                outputs[name] = {"outputs": told}
            green = green and done
        known["steps"] = outputs
        return green

    def _holds(self, condition: str, known: Mapping[str, Any], *, green: bool) -> bool:
        if condition == "always()":
            return True
        left, unequal, right = condition.partition(" != ")
        assert unequal, condition
        return green and value(left, known) != value(right, known)

    def _action(
        self, step: Mapping[str, Any], name: str, known: dict[str, Any], given: Mapping[str, str]
    ) -> bool:
        uses, said = step["uses"], {k: text(v, known) for k, v in step.get("with", {}).items()}
        self.ran.append(uses)
        if uses.startswith("actions/upload-artifact@"):
            folder = self.workspace / said["path"]
            files = [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()]
            assert files, f"nothing in {folder}"
            # Without the option a hidden file is left out, and all files of a hidden folder.
            hidden = said.get("include-hidden-files") == "true"
            place = Path(said["path"])
            kept = [p for p in files if hidden or not _is_hidden(place / p)]
            assert said["name"] not in self.uploads, "a name is taken once in a run"
            self.uploads[said["name"]] = sorted(map(str, kept))
            return True
        if uses.startswith(("actions/checkout@", "actions/setup-python@")):
            return True
        assert "/aggverify@" in uses, uses
        action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
        assert set(said) <= set(action["inputs"]), said
        needed = {k for k, about in action["inputs"].items() if about.get("required")}
        assert needed <= set(said), said
        usual = {k: text(v.get("default", ""), known) for k, v in action["inputs"].items()}
        inner = {"inputs": usual | said, "github": {**known["github"], "action": name}}
        inner["strategy"] = known["strategy"]
        paths = {"GITHUB_ACTION_PATH": str(ROOT)}
        done = self._steps(action["runs"]["steps"], inner, {**given, **paths})
        self.outputs[name] = {
            k: text(about["value"], inner) for k, about in action["outputs"].items()
        }
        return done

    def _run(
        self, step: Mapping[str, Any], known: Mapping[str, Any], given: Mapping[str, str]
    ) -> tuple[bool, dict[str, str]]:
        self.own.mkdir(exist_ok=True)
        told = self.own / "output"
        told.write_text("")
        script = text(step["run"], known)
        more = {k: text(v, known) for k, v in step.get("env", {}).items()}
        more |= {
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_EVENT_NAME": self.github["event_name"],
            "GITHUB_OUTPUT": str(told),
            "GITHUB_STEP_SUMMARY": str(self.own / "summary.md"),
        }
        self.ran.append(script)
        done = subprocess.run(
            [*_SHELLS[step.get("shell")], "-c", script],
            cwd=self.workspace / text(step.get("working-directory", "."), known),
            env={**given, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.printed += f"$ {script}\n{done.stdout}"
        pairs = (line.partition("=") for line in told.read_text().splitlines())
        return done.returncode == 0, {key: found for key, _, found in pairs}


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") and part != "." for part in path.parts)


def text(written: object, known: Mapping[str, Any]) -> str:
    """With its expressions replaced."""
    plain = str(written).lower() if isinstance(written, bool) else str(written)
    return _EXPRESSION.sub(lambda found: value(found[1], known), plain)


def value(expression: str, known: Mapping[str, Any]) -> str:
    """Of names, texts in quotes, and ``||`` between them; what is not there is empty."""
    for part in expression.split(" || "):
        if part.startswith("'"):
            found: Any = part.strip("'")
        else:
            found = known
            for name in part.split("."):
                found = found.get(name, {}) if isinstance(found, Mapping) else {}
        if found not in ("", {}):
            return str(found)
    return ""
