"""Frameworks whose functions are called by an adapter, each as a person would write it.

Signatures and what the trainers pass: verl 0.9.1, TRL 1.16.0, OpenRLHF 0.11.2, slime and miles of
autumn 2026, and the frameworks' own documentation.
"""

from __future__ import annotations

from pathlib import Path

from aggverify.conventions.adapter_convention import AdapterConvention
from aggverify.conventions.adapter_file import declared


def shipped() -> dict[str, AdapterConvention]:
    """By name: the file's, with dashes."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    found = [declared(str(file), file.stem.replace("_", "-")) for file in files]
    return {how.name: how for how in found if isinstance(how, AdapterConvention)}
