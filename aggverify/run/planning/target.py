"""What a person may write as TARGET."""

from __future__ import annotations

import ast
import importlib.util
import keyword
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from aggverify.conventions.adapter_text import ImportSource
from aggverify.errors import CandidateError
from aggverify.files import contents, parsed
from aggverify.files import is_path as is_path
from aggverify.files import split as split


@dataclass(frozen=True, slots=True)
class Target:
    """``path.py``, ``path.py:name`` or ``package.module:name``; a name may be dotted."""

    text: str
    path: Path | None
    module: str | None
    name: str | None

    def setup(self) -> dict[str, str]:
        """Return what a template process needs to import it."""
        named = {} if self.name is None else {"name": self.name}
        if self.path is not None:
            return {"path": str(self.path), **named}
        assert self.module is not None
        return {"module": self.module, **named}


def parse_target(text: str) -> Target:
    """Split a target and make sure a file exists and is Python; raises CandidateError."""
    head, name = split(text)
    if is_path(head) or (Path(head).suffix and Path(head).is_file()):
        return Target(text, _readable(Path(head)), None, name)
    parts = head.split(".")
    if not all(part.isidentifier() for part in parts):
        raise CandidateError(
            f"not a target: {text!r}; write path.py, path.py:name or package.module:name"
        )
    return Target(text, None, head, name)


def _readable(path: Path) -> Path:
    try:
        source = contents(path)
    except FileNotFoundError:
        raise CandidateError(f"no such file: {path}") from None
    except OSError as error:
        raise CandidateError(f"cannot read {path}: {error.strerror}") from None
    if path.suffix != ".py":
        raise CandidateError(f"not a Python file: {path} (a target's file ends in .py)")
    try:
        compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").rstrip()
        raise CandidateError(
            f"syntax error in {path}, line {error.lineno}: {error.msg}\n    {line.lstrip()}"
        ) from None
    except ValueError as error:
        raise CandidateError(f"not Python source: {path} ({error})") from None
    except (MemoryError, RecursionError):  # CPython's parser raises MemoryError for a full stack
        raise CandidateError(f"{path}: an expression nests too deeply to be compiled") from None
    return path.resolve()


def dotted_instead(path: Path, name: str | None, command: str = "check") -> str | None:
    """Return the command that names a file by its module, as relative imports in it need.

    None for a file without such an import.
    """
    try:
        tree = parsed(path.read_bytes())
    except (OSError, SyntaxError):
        return None
    levels = [n.level for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level]
    if not levels:
        return None
    root = path.parents[min(max(levels), len(path.parents) - 1)]
    for folder in path.parents:
        if not (folder / "__init__.py").is_file():
            root = min(root, folder, key=lambda p: len(p.parts))
            break
    parts = path.relative_to(root).with_suffix("").parts
    dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    where = "" if root == Path.cwd() else f"PYTHONPATH={shlex.quote(_short(root))} "
    return f"{where}aggverify {command} {dotted}" + (f":{name}" if name else "")


def _short(folder: Path) -> str:
    """Relative to where the person stands, if it lies below."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def origin(target: Target) -> ImportSource:
    """Return how a file next to the target can import it: as a module, or by its path."""
    if target.path is None:
        return ImportSource(target.module)
    name, file = target.path.stem, target.path.name
    if not name.isidentifier() or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        return ImportSource(None, file)
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ImportSource(None, file)
    other = found is not None and (found.origin is None or Path(found.origin) != target.path)
    return ImportSource(None if other else name, file)
