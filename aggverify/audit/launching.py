"""The job with a recorder in its ranks.

It is a command, run with an environment that names its folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from aggverify.audit.probe_points import KINDS, VALUES, VARIABLE
from aggverify.audit.records import SUFFIX
from aggverify.audit.step_selection import StepSelection
from aggverify.errors import InputError, shown, unknown
from aggverify.files import contents
from aggverify.run.planning import project

_OPTIONAL = {"engine", "of", "within", *VALUES}


def points(start: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the shipped probe points, and the project's, which go before.

    The project's are those of its pyproject.toml.
    """
    shipped = tomllib.loads(files(__package__).joinpath("points.toml").read_text("utf-8"))
    for folder in project.folders(start):
        path = folder / "pyproject.toml"
        if path.is_file():
            own: Any = tomllib.loads(contents(path).decode())
            for part in ("tool", "aggverify", "probe-points"):
                own = own.get(part, {}) if isinstance(own, Mapping) else {}
            return shipped | {name: checked(name, point) for name, point in own.items()}
    return shipped


def checked(name: str, point: object) -> Mapping[str, str]:
    """Return a probe point; raises InputError for what is none."""
    keys = {"module", "function", *KINDS, *_OPTIONAL}
    if not isinstance(point, Mapping) or not all(isinstance(v, str) for v in point.values()):
        raise InputError(f"probe point {name!r} is a table of texts, got {shown(point)}")
    for key in point:
        if key not in keys:
            raise unknown(f"key of probe point {name!r}", key, sorted(keys))
    missing = {"module", "function"} - set(point)
    if missing or len(set(KINDS) & set(point)) != 1:
        raise InputError(
            f"probe point {name!r} needs module, function and one of {', '.join(KINDS)}, got "
            f"{', '.join(point)}"
        )
    wants = {"log_probs": "advantages", "logits": "labels"}
    for kind, value in wants.items():
        if kind in point and value not in point:
            raise InputError(f"probe point {name!r} has {kind}, and lacks {value}")
    return dict(point)


def named(name: str, start: Path) -> Mapping[str, str]:
    """Return the probe point of that name; raises InputError."""
    known = points(start)
    if name not in known:
        raise unknown("probe point", name, known)
    return known[name]


def run(
    command: Sequence[str],
    folder: Path,
    at: Mapping[str, str] | None,
    steps: str,
    *,
    verify_engine: bool,
) -> int:
    """Run the command with its ranks recording into an empty folder; its exit code.

    Raises InputError where the folder has records, or the command is not there.
    """
    StepSelection.read(steps)
    if any(folder.glob(f"*{SUFFIX}")):
        raise InputError(f"{folder} holds the records of another run: empty it, or --probe-dir")
    folder.mkdir(parents=True, exist_ok=True)
    here = files("aggverify.audit")
    more = {"AGGVERIFY_PROBE": str(folder.resolve()), "AGGVERIFY_PROBE_STEPS": steps}
    if verify_engine:
        more["AGGVERIFY_PROBE_ENGINE"] = "1"
    if at is not None:
        path = [str(here / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        more |= {
            VARIABLE: json.dumps([at]),
            "PYTHONPATH": os.pathsep.join(path),
            "AGGVERIFY_PROBE_HOME": str(Path(str(here)).parents[1]),
        }
    try:
        return subprocess.run(list(command), env={**os.environ, **more}).returncode
    except OSError as error:
        raise InputError(f"cannot run {command[0]!r}: {error.strerror}") from None
