"""What a person may write as TARGET, and how a candidate is found in it without importing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggverify.conventions import CONVENTIONS, Convention, Offer, convention
from aggverify.errors import CandidateError, unknown


@dataclass(frozen=True, slots=True)
class Target:
    """``path.py``, ``path.py:name`` or ``package.module:name``."""

    text: str
    path: Path | None
    module: str | None
    name: str | None

    def setup(self) -> dict[str, str]:
        """What a template process needs to import it."""
        if self.path is not None:
            return {"path": str(self.path)}
        assert self.module is not None
        return {"module": self.module}


@dataclass(frozen=True, slots=True)
class Choice:
    """The function to verify and how it is called."""

    function: str
    offer: Offer
    convention: Convention


def parse_target(text: str) -> Target:
    """Split a target and make sure a file exists and is Python; raises CandidateError."""
    head, name = split(text)
    if is_path(head):
        return Target(text, _readable(Path(head)), None, name)
    parts = head.split(".")
    if not all(part.isidentifier() for part in parts):
        raise CandidateError(
            f"not a target: {text!r}; write path.py, path.py:name or package.module:name"
        )
    return Target(text, None, head, name)


def split(text: str) -> tuple[str, str | None]:
    """File or module of a target, and the function's name if it has one."""
    head, colon, name = text.rpartition(":")
    if not colon or name.endswith(".py"):
        return text, None
    return head, name or None


def is_path(head: str) -> bool:
    """Whether that is a file rather than a module."""
    return head.endswith(".py") or "/" in head


def _readable(path: Path) -> Path:
    try:
        source = path.read_bytes()
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
    return path.resolve()


def choose(target: Target, description: Mapping[str, Any], wanted: str) -> Choice:
    """The reducer among the module's functions; raises CandidateError listing what was found."""
    offers = [
        Offer(o["name"], tuple(o["parameters"]), tuple(o["required"]))
        for o in description["offers"]
        if target.name in (None, o["name"])
    ]
    if target.name is not None and not offers:
        names = [o["name"] for o in description["offers"]]
        raise CandidateError(str(unknown("function", target.name, names)))
    conventions = list(CONVENTIONS.values()) if wanted == "auto" else [convention(wanted)]
    found = [
        Choice(offer.name, offer, c) for offer in offers for c in conventions if c.recognises(offer)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(choice.function for choice in found)
        raise CandidateError(
            f"{target.text} offers several reducers ({several}); choose one: {target.text}:"
            f"{found[0].function}"
        )
    if wanted != "auto" and len(offers) == 1:
        # The person named both: call it as told; if it cannot be called so, that is the finding.
        return Choice(offers[0].name, offers[0], conventions[0])
    raise CandidateError(_nothing_found(target, offers, conventions))


def _nothing_found(
    target: Target, offers: Sequence[Offer], conventions: Sequence[Convention]
) -> str:
    if offers:
        lines = [f"    {o.name}({', '.join(o.parameters)})" for o in offers[:12]]
        found = "found these functions:\n" + "\n".join(lines)
    else:
        found = "found no public function"
    accepted = "\n".join(f"    {c.name:18} {c.signature}" for c in conventions)
    return f"no reducer in {target.text}: {found}\n  accepted:\n{accepted}"
