"""Two states of a git repository next to each other, each in its own temporary worktree."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aggverify.errors import InputError


@dataclass(frozen=True, slots=True)
class Tree:
    """A state of the repository as files."""

    name: str
    """As it was given, with the commit."""
    root: Path
    here: Path
    """The folder in it that the person stands in."""
    top: Path
    """The root of the person's own checkout."""

    def environment(self) -> dict[str, str]:
        """Return the variables of a command that imports all of the repository from this tree.

        Also what is installed from the person's own checkout.
        """
        own = [folder for folder in (self.root, self.root / "src") if folder.is_dir()]
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        mine = (self._here(path) for path in _imported_from())
        installed = [path for path in mine if path.is_relative_to(self.root) and path.is_dir()]
        paths = dict.fromkeys([*own, *(self._here(Path(path)) for path in given), *installed])
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}

    def _here(self, path: Path) -> Path:
        """Return a folder of the person's checkout as it is in this tree."""
        inside = path.resolve()
        if not inside.is_relative_to(self.top):
            return path
        return self.root / inside.relative_to(self.top)


def _imported_from() -> Iterator[Path]:
    """Yield the folders that this interpreter imports from, those of editable installs included.

    They are found by lines of a ``.pth`` file, which are in ``sys.path``, or by a finder that
    setuptools writes.
    """
    yield from (Path(path) for path in sys.path if path)
    for name, module in list(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None) if name.startswith("__editable__") else None
        if isinstance(mapping, dict):
            yield from (Path(str(path)).parent for path in mapping.values())


def uncommitted(*revisions: str) -> bool:
    """Whether one of them is the checked-out commit while tracked files have other changes."""
    if all(map(_is_folder, revisions)):
        return False
    top = repository()
    if not git("status", "--porcelain", "--untracked-files=no", at=top):
        return False
    here = git("rev-parse", "HEAD", at=top)
    return here in (_commit(one, top) for one in revisions if not _is_folder(one))


def _commit(revision: str, top: Path) -> str:
    return git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}", at=top)


def _is_folder(revision: str) -> bool:
    return revision.startswith((".", "/")) and Path(revision).is_dir()


def git(*arguments: str, at: Path | None = None) -> str:
    """Return the output of a git command; raises InputError with its message."""
    # No hook of the repository runs, and nothing is asked.
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false"]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            [*command, *arguments], cwd=at, env=environment, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise InputError("--revisions needs git, which is not installed") from None
    if done.returncode:
        raise InputError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def repository() -> Path:
    """Return the root of the checkout that the person stands in.

    Raises InputError where there is none.
    """
    return Path(git("rev-parse", "--show-toplevel")).resolve()


@contextlib.contextmanager
def temporary(top: Path) -> Iterator[Path]:
    """Give a folder for worktrees and documents, removed even if this process is killed.

    A shell waits for that, and forgets worktrees of the repository ``top`` that are gone.
    """
    folder = Path(tempfile.mkdtemp(prefix="aggverify-")).resolve()
    cleaner = subprocess.Popen(
        ["sh", "-c", _CLEANER, "sh", str(folder), str(top)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        cleaner.communicate()


_CLEANER = 'cat; rm -rf -- "$1"; git -C "$2" worktree prune'
"""``cat`` ends when the other end of its pipe does: with this process, even where it is killed."""


@contextlib.contextmanager
def checked_out(*revisions: str) -> Iterator[tuple[Tree, ...]]:
    """Give a tree for each revision, or folder that is there; nothing is left of it afterwards.

    Folders alone may be compared outside of a repository.
    """
    here = Path.cwd().resolve()
    top = _root_of(here) if all(map(_is_folder, revisions)) else repository()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary(top))
        yield tuple(
            _folder(revision, top, here)
            if _is_folder(revision)
            else stack.enter_context(_worktree(revision, top, here, folder / str(n)))
            for n, revision in enumerate(revisions)
        )


def _folder(name: str, top: Path, here: Path) -> Tree:
    """Take a whole checkout as it is, the part of it that the person stands in in their own.

    Raises InputError for another folder below one: what it has is known by its path there.
    """
    folder = Path(name).resolve()
    root = _root_of(folder)
    inside = root / here.relative_to(top)
    if folder not in (root, inside):
        raise InputError(
            f"{name} lies in the checkout {root}, so it is no state of it: give a git revision, or "
            "a folder outside of it; or compare two files with aggverify check NEW --against OLD"
        )
    return Tree(name, root, inside if inside.is_dir() else root, top)


def _root_of(folder: Path) -> Path:
    """Return the root of the checkout that a folder is in; outside of one, the folder itself."""
    try:
        return Path(git("rev-parse", "--show-toplevel", at=folder)).resolve()
    except InputError:
        return folder


@contextlib.contextmanager
def _worktree(revision: str, top: Path, here: Path, folder: Path) -> Iterator[Tree]:
    commit = _commit(revision, top)
    try:
        git("worktree", "add", "--quiet", "--detach", str(folder), commit, at=top)
        name = revision if commit.startswith(revision) else f"{revision} ({commit[:7]})"
        yield Tree(name, folder, folder / here.relative_to(top), top)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(InputError):
            git("worktree", "prune", at=top)
