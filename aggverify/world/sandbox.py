"""``--sandbox``: the launcher and all below it, made by bubblewrap (``bwrap``).

They are without network beyond loopback, home directory, other people's processes and files to
write to.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aggverify.world import interpreter, system_calls
from aggverify.world.faults import PoolError

MAKER = "bwrap"
TEMPORARY = Path("/tmp")
"""Their own, in memory, and gone with them; HOME, too."""
TEMPORARY_BYTES = 1 << 28
ENVIRONMENT = (
    "PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHASHSEED",
    "PYTHONUTF8", "PYTHONWARNINGS", "CI",
)  # fmt: skip
"""Variables that are handed on."""
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache",
    "/etc/alternatives", "/sys/devices/system/cpu",
)  # fmt: skip
_HISTORY = ".git"
"""Hidden in every folder that is shown: a checkout may keep a token there."""
_SWITCHES = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ("kernel/unprivileged_userns_clone", "0"),
    ("user/max_user_namespaces", "0"),
)
"""Settings of kernels that refuse user namespaces."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """``shown``: folders that can be read in it, in addition to the system's and Python's own."""

    shown: tuple[Path, ...] = ()

    def command(self, inner: Sequence[str], filtered: int, *, follow: bool) -> list[str]:
        """Return the command that runs ``inner`` in the sandbox, as its first process.

        Raises PoolError where it would show what it is to hide. ``filtered``: the file with the
        filter. ``follow``: ends with the calling thread.
        """
        return [
            MAKER,
            *(f"--unshare-{what}" for what in ("user", "ipc", "pid", "net", "uts", "cgroup-try")),
            *("--cap-drop", "ALL", "--as-pid-1", "--seccomp", str(filtered)),
            *(("--die-with-parent",) if follow else ()),
            *self._files(_home()),
            *("--chdir", str(Path.cwd()), "--", *inner),
        ]

    def _files(self, home: Path) -> Iterator[str]:
        for system in _SYSTEM:
            yield from ("--ro-bind-try", system, system)
        # As a whole: the switches below /proc/sys belong to root, who may be the one who runs this.
        yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
        yield from (*_own(Path("/dev/shm")), "--remount-ro", "/dev", *_own(TEMPORARY))
        covered = home.is_dir() and home not in (Path("/"), TEMPORARY)
        if covered:
            yield from ("--tmpfs", str(home))
        shown = [p for p in (*_interpreter(), *self.shown, *_importable()) if p.exists()]
        for path in dict.fromkeys(shown):
            _check(path, home)
            yield from ("--ro-bind", str(path), str(path))
        for history in dict.fromkeys(found for path in shown for found in _histories(path)):
            if history.is_dir():
                yield from ("--tmpfs", str(history), "--remount-ro", str(history))
            else:  # of a worktree or submodule: it names the folder
                yield from ("--ro-bind", "/dev/null", str(history))
        if covered:
            yield from ("--remount-ro", str(home))
        yield from ("--remount-ro", "/")

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Variables that are seen in it, with these."""
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        own = dict.fromkeys(("HOME", "TMPDIR"), str(TEMPORARY)) | {"USER": "nobody"}
        return {**kept, **own, **more}


def filtered() -> int:
    """Make a file with the system-call filter; raises PoolError where there can be no sandbox."""
    if shutil.which(MAKER) is None:
        raise PoolError(
            "--sandbox needs bubblewrap, and there is no bwrap here: install your system's package "
            "(apt-get install bubblewrap)"
        )
    return system_calls.program()


def refused(message: str) -> str:
    """Why none could be made, in bwrap's own words and with the switch that may be to blame."""
    for name, value in _SWITCHES:
        file = Path("/proc/sys") / name
        if file.is_file() and file.read_text().strip() == value:
            message += f" (sysctl {name.replace('/', '.')} is {value})"
    return f"no sandbox can be made here: {message or 'bwrap does not say why'}"


def _histories(shown: Path) -> Iterator[Path]:
    """Every ``.git`` below a folder, those of checkouts inside it included."""
    for folder, folders, files in os.walk(shown):
        if _HISTORY in folders:
            folders.remove(_HISTORY)
            yield Path(folder, _HISTORY)
        elif _HISTORY in files:
            yield Path(folder, _HISTORY)


def _own(folder: Path) -> tuple[str, ...]:
    return ("--size", str(TEMPORARY_BYTES), "--tmpfs", str(folder))


def _home() -> Path:
    try:
        return Path.home().resolve()
    except RuntimeError:  # none is known
        return Path("/")


def _interpreter() -> tuple[Path, ...]:
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    found = [Path(prefix) for prefix in sorted(prefixes)]
    return (*found, *(path.resolve() for path in found), interpreter.ROOT)


def _importable() -> list[Path]:
    return [Path(entry or Path.cwd()).absolute() for entry in sys.path]


def _check(path: Path, home: Path) -> None:
    for hidden in {home, TEMPORARY} - {Path("/")}:
        if hidden.is_relative_to(path.resolve()):
            raise PoolError(
                f"--sandbox hides {hidden}, and the code to be run needs {path}: put it into a "
                "separate folder and run this from there"
            )
