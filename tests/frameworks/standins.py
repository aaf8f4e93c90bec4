"""Empty modules for what a framework imports but its reduction code never uses.

SkyRL's loss functions need torch only; the module they live in also imports Ray and friends.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

ABSENT = frozenset(
    (
        *("cloudpathlib", "jaxtyping", "loguru", "omegaconf", "pydantic", "ray"),
        *("skyrl_gym", "tensordict", "transformers", "yaml"),
    )
)


class _Anything:
    """Accepts every call, attribute and subscript; false, so that "is it running?" says no."""

    _VALID_DICT_FIELDS: tuple[str, ...] | list[str] = []  # noqa: RUF012 - of TrainingArguments

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # used as a decorator
        return _Anything()

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class _Module(ModuleType):
    __path__ = ()
    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Anything,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, absent: frozenset[str]) -> None:
        self._absent = absent

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if any(f"{fullname}.".startswith(f"{name}.") for name in self._absent):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install(*more: str) -> None:
    """Answer imports of the absent packages from now on, installed ones included."""
    sys.meta_path.insert(0, _Finder(ABSENT.union(more)))
