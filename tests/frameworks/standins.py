"""Empty modules for what a framework imports but its reduction code never uses.

SkyRL's loss functions need torch only; the module they live in also imports Ray and friends.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from abc import ABCMeta
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ABSENT = frozenset(
    (
        *("cloudpathlib", "jaxtyping", "loguru", "omegaconf", "pydantic", "ray"),
        *("skyrl_gym", "tensordict", "transformers", "yaml"),
    )
)


DEVICES = frozenset(
    (
        *("torch_mlu", "torch_npu", "torch_musa", "torch_sdaa", "torch_xla", "torch_hpu"),
        *("habana_frameworks", "intel_extension_for_pytorch"),
    )
)
"""Of accelerators, which a framework takes for present where they can be imported."""
_PASSED_THROUGH = (__file__, str(Path(importlib.__file__).parent), "<frozen importlib")
"""What stands between an import and its finder."""


class _Class(ABCMeta):
    """Of a class that has every attribute, too: ``logger.info`` where ``logger`` stands in."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __delattr__(cls, name: str) -> None:
        """A patch takes away what it replaces."""

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__


class _Anything(metaclass=_Class):
    """Accepts every call, attribute and subscript; false, so that "is it running?" says no."""

    _VALID_DICT_FIELDS: tuple[str, ...] | list[str] = []  # noqa: RUF012 - of TrainingArguments

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
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

    def __or__(self, other: Any) -> Any:
        return Any  # of annotations

    __ror__ = __or__

    def __getitem__(self, item: Any) -> Any:
        return _Anything()

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *how: object) -> None:
        pass


class _Module(ModuleType):
    __path__ = ()
    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Anything,), {"__init__": _Anything.__init__})


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name: str) -> None:
        self._text = f"Name: {name}\nVersion: {_Module.__version__}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return path


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, stands_in: Callable[[str], bool]) -> None:
        self._stands_in = stands_in

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if self._stands_in(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def find_distributions(self, context: Any = None) -> Any:
        """Its version, for who asks before importing it."""
        name = getattr(context, "name", None)
        return [_Distribution(name)] if name and self._stands_in(name) else []

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install(*more: str, there: Sequence[str] = ()) -> None:
    """Answer imports of the absent packages from now on, installed ones included, but not those
    that lie in one of these folders."""
    whole = {path.name for folder in there for path in Path(folder).iterdir()}
    absent = (ABSENT - whole).union(more)
    sys.meta_path.insert(
        0, _Finder(lambda name: any(f"{name}.".startswith(f"{given}.") for given in absent))
    )


def install_missing(folder: str) -> None:
    """Answer what code in that folder imports and this machine lacks; for other code it is missing
    as before."""
    root = str(Path(folder).resolve())

    def theirs(name: str) -> bool:
        if name.partition(".")[0] in DEVICES:
            return False
        frame = sys._getframe(1)
        while frame.f_back is not None:
            frame = frame.f_back
            file = frame.f_code.co_filename
            if not file.startswith(_PASSED_THROUGH):
                return str(Path(file).resolve()).startswith(root)
        return False

    sys.meta_path.append(_Finder(theirs))
