"""``aggverify --version``: what a report of a bug needs, without importing torch."""

from __future__ import annotations

import platform
import re
from importlib.util import find_spec
from pathlib import Path

import click

from aggverify import __version__
from aggverify.world.backends import BACKENDS

_GPUS = Path("/proc/driver/nvidia/gpus")


def print_versions(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the versions and end the command, as the option's callback."""
    if wanted and not context.resilient_parsing:
        click.echo("\n".join(versions()))
        context.exit()


def versions() -> list[str]:
    """Versions of aggverify, Python and torch, and the backends that can be used here."""
    torch, cuda = torch_build()
    gpus = len(list(_GPUS.iterdir())) if _GPUS.is_dir() else 0
    missing = "torch is a CPU build" if cuda is None else "" if gpus else "no NVIDIA driver"
    usable = [b.name for b in BACKENDS.values() if not (b.is_far and missing)]
    unusable = [b.name for b in BACKENDS.values() if b.name not in usable]
    return [
        f"aggverify {__version__}",
        f"Python {platform.python_version()}",
        f"torch {torch or 'is not installed'}{f', CUDA {cuda}, GPUs: {gpus}' if cuda else ''}",
        f"backends {', '.join(usable)}"
        + (f" (not {' and '.join(unusable)}: {missing})" if unusable else ""),
    ]


def torch_build() -> tuple[str | None, str | None]:
    """Return the version of torch and of the CUDA it was built for, read from its files."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None, None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    version = re.search(r"__version__ = '([^']+)'", text)
    cuda = re.search(r"^cuda\b[^=]*= '([^']+)'", text, re.MULTILINE)
    return version and version[1], cuda and cuda[1]
