"""A case written into its own folder, to be run with plain torch."""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from aggverify import escape
from aggverify.errors import InputError
from aggverify.files import contents, parsed, reason_of, write_inside
from aggverify.run.export import STAND_INS, Export

RUNNER, CASE, REDUCER = "run.py", "case.json", "reducer.py"
ADAPTER = "adapter.py"
SHARED = ("megatron_mpu", "padded_rows")
"""Modules of ``conventions`` that need torch alone: the runner imports their copies."""
MOST_BYTES = 1 << 24
"""Largest file of a reducer or an adapter that is copied."""


def check_empty(folder: Path) -> None:
    """Raise InputError unless the folder is there and empty, or can be made."""
    try:
        no_folder = folder.is_symlink() or (folder.exists() and not folder.is_dir())
        holds_files = not no_folder and folder.is_dir() and any(folder.iterdir())
    except (OSError, ValueError) as error:
        raise InputError(f"--export {folder}: {reason_of(error)}") from None
    if no_folder:
        raise InputError(f"--export {folder} is no folder: name an empty one, or a new one")
    if holds_files:
        raise InputError(f"--export {folder} is not empty: name an empty folder, or a new one")


def write(made: Export, folder: Path) -> list[str]:
    """Write all files and return lines on how they are run; raises InputError.

    Files that are there are not replaced: the folder has to be empty.
    """
    check_empty(folder)
    try:
        for name, text in _texts(made):
            write_inside(folder, name, text)
    except (OSError, ValueError) as error:
        raise InputError(f"--export {folder}: {reason_of(error)}") from None
    return [escape.line(text) for text in _lines(made, folder)]


def _texts(made: Export) -> Iterator[tuple[str, str]]:
    parts = (f"{json.dumps(key)}: {json.dumps(part)}" for key, part in made.case.items())
    yield CASE, "{\n" + ",\n".join(parts) + "\n}\n"
    if made.reducer is not None:
        yield REDUCER, contents(made.reducer, MOST_BYTES).decode()
    shared = list(SHARED)
    if made.adapter is not None:
        text = contents(made.adapter, MOST_BYTES).decode()
        name = STAND_INS.rpartition(".")[2]
        own = text.replace(f"from {STAND_INS} import", f"from {name} import")
        yield ADAPTER, own
        shared += [name] * (own != text)
    for name in shared:
        yield f"{name}.py", (files("aggverify.conventions") / f"{name}.py").read_text("utf-8")
    yield RUNNER, (files("aggverify.report") / "templates" / RUNNER).read_text("utf-8")


def _lines(made: Export, folder: Path) -> Iterator[str]:
    command = ["python", str(folder / RUNNER)]
    yield f"exported to {folder}: {shlex.join(command)} needs torch alone"
    if made.reducer is None:
        yield f"it imports {made.case['reducer']}: run it where Python finds that"
        return
    neighbours = sorted(_neighbours(made.reducer))
    if neighbours:
        home = made.reducer.parent.resolve()
        again = f"PYTHONPATH={shlex.quote(str(home))} {shlex.join(command)}"
        yield f"{REDUCER} imports {', '.join(neighbours)} from {home}: run {again}"


def _neighbours(path: Path) -> set[str]:
    """Modules in the reducer's folder that it imports."""
    names: set[str] = set()
    with suppress(OSError, ValueError, SyntaxError):
        for node in ast.walk(parsed(contents(path, MOST_BYTES))):
            if isinstance(node, ast.Import):
                names |= {word.name.partition(".")[0] for word in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    found = path.parent
    return {n for n in names if (found / f"{n}.py").is_file() or (found / n).is_dir()}
