"""Every finding and warning code: its traits, and what it means to people."""

from aggverify.codes.base import Code, Diagnosed, Effect, Example, Explanation, Symptom
from aggverify.codes.registry import CODES, code, code_of_failure, register, registered

__all__ = [
    "CODES",
    "Code",
    "Diagnosed",
    "Effect",
    "Example",
    "Explanation",
    "Symptom",
    "code",
    "code_of_failure",
    "register",
    "registered",
]
