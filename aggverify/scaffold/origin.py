"""Where this very aggverify came from: how pip gets it again, and the address of its schema."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from aggverify import __version__

_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_SCHEMA = "schema/pyproject.json"


@dataclass(frozen=True, slots=True)
class Origin:
    """A repository and a commit of it."""

    vcs: str
    url: str
    commit: str


def origin() -> Origin | None:
    """Return the repository that it was installed from.

    None where it came from an index or a folder.
    """
    with suppress(PackageNotFoundError, ValueError, TypeError, KeyError, OSError):
        found = json.loads(distribution("aggverify").read_text("direct_url.json") or "")
        if "vcs_info" in found:
            vcs = found["vcs_info"]
            return Origin(vcs["vcs"], _public(found["url"]), vcs["commit_id"])
        clone = url2pathname(urlsplit(found["url"]).path)
        url = _public(_git(clone, "remote", "get-url", "origin"))
        return Origin("git", url, _git(clone, "rev-parse", "HEAD"))
    return None


def requirement() -> str:
    """How pip gets it, as a word of a shell's line."""
    if (found := origin()) is None:
        return f"aggverify=={__version__}"
    return shlex.quote(f"aggverify @ {found.vcs}+{found.url}@{found.commit}")


def schema_url() -> str:
    """Return the address of the schema for pyproject.toml.

    That of its commit on GitHub, else of the file on this machine, which no file that is committed
    can name.
    """
    if (found := origin()) is not None and (hub := _GITHUB.fullmatch(found.url)) is not None:
        where = f"{hub[1]}/{found.commit}/aggverify/{_SCHEMA}"
        return f"https://raw.githubusercontent.com/{where}"
    return Path(str(files("aggverify") / _SCHEMA)).as_uri()


def _public(url: str) -> str:
    """By https, and without the name and token that git may keep in it."""
    url = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", url)
    return re.sub(r"^(https?://)[^/@]*@", r"\1", url)


def _git(clone: str, *arguments: str) -> str:
    """Return what git answers in a clone; raises ValueError where it answers nothing."""
    ran = subprocess.run(["git", "-C", clone, *arguments], capture_output=True, text=True)
    if ran.returncode:
        raise ValueError(ran.stderr)
    return ran.stdout.strip()
