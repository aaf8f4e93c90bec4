"""The files that a project begins with: where they go, and what is in them."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from aggverify.conventions.adapter_text import adapter_file
from aggverify.errors import InputError
from aggverify.run.planning.target import Target
from aggverify.scaffold.origin import requirement

_ROOTS = (".git", "pyproject.toml")
"""Signs of a project's root, the surest first."""


@dataclass(frozen=True, slots=True)
class ScaffoldSubject:
    """What is verified: a file or target, and the options given beyond what it declares."""

    function: str
    target: str
    """As on a command line in the project's root."""
    sibling: str | None
    """``file.py`` or ``file.py:name``, where that file lies next to the test; else None."""
    options: Mapping[str, Any] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    """Options that only the person can give."""

    @property
    def name(self) -> str:
        """As a part of a file's name."""
        return self.function.replace(".", "_").strip("_") or "reducer"

    @property
    def arguments(self) -> str:
        """The options as arguments in Python."""
        spelled = {k: repr(v).replace("'", '"') for k, v in self.options.items()}
        spelled |= {name: name.upper() for name in self.left}
        return "".join(f", {key}={value}" for key, value in spelled.items())

    @property
    def step(self) -> str:
        """The command as a value in YAML, with what a CI service reads."""
        command = f"{self.command} --github --report json,md,html"
        return command if _PLAIN.fullmatch(command) else json.dumps(command)

    @property
    def command(self) -> str:
        """The command that verifies it."""
        words = ["aggverify", "check", self.target]
        for key, value in self.options.items():
            values = value if isinstance(value, list) else [value]
            for one in values:
                words += [f"--{_FLAGS.get(key, key)}", str(one)]
        for key in self.left:
            words += [f"--{_FLAGS.get(key, key)}", key.upper()]
        return shlex.join(words)


_FLAGS = {"modes": "mode"}
_PLAIN = re.compile(r"[\w ./:=,+-]*")
"""Characters of a command that needs no quotes in YAML."""


@dataclass(frozen=True, slots=True)
class Files:
    """Texts by path, in the order in which they are listed."""

    texts: Mapping[Path, str]
    command: str
    """What verifies it at once, in the directory of the project's root."""
    root: Path

    def write(self) -> None:
        """Write all of them, or nothing where one of them is there; raises InputError, OSError."""
        if there := [path for path in self.texts if path.exists() or path.is_symlink()]:
            names = ", ".join(map(str, there))
            raise InputError(f"nothing was written; delete or rename first: {names}")
        written: list[Path] = []
        try:
            for path, text in self.texts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("x", encoding="utf-8") as file:
                    written.append(path)
                    file.write(text)
        except OSError:
            for path in written:
                with suppress(OSError):
                    path.unlink()
            raise


def files(
    target: Target,
    function: str,
    adapter: str = "",
    options: Mapping[str, Any] | None = None,
    left: tuple[str, ...] = (),
) -> Files:
    """Return an adapter if there is one, a test and a workflow."""
    folder = Path.cwd() if target.path is None else target.path.parent
    root = _root(folder)
    texts: dict[Path, str] = {}
    sibling, spelled = None, target.text
    if adapter:
        path = folder / adapter_file(function)
        texts[path] = adapter
        sibling, spelled = path.name, str(path.relative_to(root))
    elif target.path is not None:
        name = f":{target.name}" if target.name else ""
        sibling = target.path.name + name
        spelled = str(target.path.relative_to(root)) + name
    subject = ScaffoldSubject(function, spelled, sibling, options or {}, left)
    texts[folder / f"test_aggverify_{subject.name}.py"] = _rendered("test.py", subject, root)
    workflow = root / ".github" / "workflows" / f"aggverify_{subject.name}.yml"
    texts[workflow] = _rendered("workflow.yml", subject, root)
    return Files(texts, subject.command, root)


def _root(folder: Path) -> Path:
    """Where the project begins: the nearest directory that looks like it, or this one."""
    for mark in _ROOTS:
        for above in (folder, *folder.parents):
            if (above / mark).exists():
                return above
    return folder


def _rendered(name: str, subject: ScaffoldSubject, root: Path) -> str:
    environment = Environment(
        loader=PackageLoader("aggverify.scaffold", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Python and YAML of names that are identifiers and quoted paths
    )
    return environment.get_template(f"{name}.j2").render(
        subject=subject,
        requirement=requirement(),
        installs=_is_installable(root),
        requirements=(root / "requirements.txt").is_file(),
    )


def _is_installable(root: Path) -> bool:
    """Whether pip can install what lies there: settings of tools alone are no package."""
    with suppress(OSError, ValueError):
        found = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
        return bool({"project", "build-system"} & found.keys()) or (root / "setup.py").is_file()
    return (root / "setup.py").is_file()
