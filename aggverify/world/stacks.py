"""Make faulthandler's dump readable: the thread that ran the job, without this package's frames."""

from __future__ import annotations

from pathlib import Path

_OURS = str(Path(__file__).resolve().parent)
_LIMIT = 8_000


def tidy(dump: str) -> str:
    """Frames innermost first as faulthandler gives them; empty for an empty dump."""
    lines = [line for line in dump.splitlines() if not _is_ours(line)]
    text = "\n".join(lines).strip()
    return text if len(text) <= _LIMIT else text[:_LIMIT] + " ..."


def _is_ours(line: str) -> bool:
    return line.lstrip().startswith(f'File "{_OURS}') or line.lstrip().startswith('File "<string>"')
