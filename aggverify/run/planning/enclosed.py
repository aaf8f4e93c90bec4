"""``--sandbox``: what of the machine is shown to the ranks of a command."""

from __future__ import annotations

from pathlib import Path

from aggverify.files import is_path, resolved, split
from aggverify.run.planning import project
from aggverify.world import Sandbox
from aggverify.world.sandbox import ENVIRONMENT, TEMPORARY

SEEN = (
    f"no network beyond loopback, no home directory, nothing to write to but {TEMPORARY}, no "
    f"environment variables but {', '.join(ENVIRONMENT)}"
)
"""What the ranks saw, in words for a report."""


def sandbox(*files: str | None) -> Sandbox:
    """Return a sandbox that shows the current project, and those of these targets and adapters."""
    heads = [split(text)[0] for text in files if text is not None]
    found = [resolved(Path(head)) for head in heads if is_path(head)]
    folders = (Path.cwd(), *(path.parent for path in found))
    return Sandbox(tuple(dict.fromkeys(map(project.root, folders))))
