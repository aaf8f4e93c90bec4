"""Packages that only tests and reports take, out of their wheels on PyPI."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from filelock import FileLock

MEGATRON_CORE = "megatron-core", "0.16.1"
ACCELERATE = (
    *("accelerate==1.15.0", "huggingface_hub==2.4.0", "safetensors==0.8.0"),
    *("psutil==7.2.2", "pyyaml==6.0.3", "tqdm==4.70.1", "requests==2.34.2"),
)
DEEPSPEED = (
    *("deepspeed==0.19.8", "einops", "hjson", "msgpack", "ninja", "py-cpuinfo", "psutil", "tqdm"),
    *("pydantic", "pydantic_core", "annotated-types", "typing-inspection", "typing-extensions"),
)
RAY = (
    *("ray==2.60.0", "click", "filelock", "jsonschema", "jsonschema-specifications", "attrs"),
    *("referencing", "rpds-py", "msgpack", "packaging", "protobuf", "pyyaml", "requests"),
    *("urllib3", "idna", "certifi", "charset-normalizer", "typing-extensions"),
)


def fetched(folder: Path, package: str, release: str) -> Path:
    """The wheel's folder in that one; downloaded once, shared by all processes."""
    target = folder / release
    with FileLock(folder / "lock"):
        if not target.is_dir():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
            subprocess.run([*command, str(folder), f"{package}=={release}"], check=True)
            [wheel] = folder.glob(f"{package.replace('-', '_')}-{release}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)
    return target


def installed(folder: Path, *packages: str) -> Path:
    """A folder with these packages; filled once, shared by all processes. Its name is one by which
    dill knows modules that it need not pickle."""
    folder.mkdir(exist_ok=True)
    target = folder / "site-packages"
    done = target / ".complete"
    with FileLock(folder / "lock"):
        if not done.exists():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
            subprocess.run([*command, str(target), *packages], check=True)
            done.touch()
    return target
