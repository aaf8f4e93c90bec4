"""A store as torch's, in this process."""

from __future__ import annotations

import threading
from datetime import timedelta


class Gone(RuntimeError):
    """What torch raises is one as well."""


class Store(dict[str, bytes]):
    """``fails_at``: what the keys begin with at which it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.fails_at = ""
        self._changed = threading.Condition()

    def _check(self, key: str) -> None:
        if self.fails_at and key.startswith(self.fails_at):
            raise Gone("Connection was closed by remote peer\nand twenty lines")

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._check(key)
            assert len(value) < 8 << 20
            self[key] = value
            self._changed.notify_all()

    def get(self, key: str) -> bytes:  # type: ignore[override]
        with self._changed:
            while key not in self:
                self._check(key)
                self._changed.wait(0.05)
            return self[key]

    def add(self, key: str, more: int) -> int:
        with self._changed:
            self._check(key)
            self[key] = b"%d" % (int(dict.get(self, key, b"0")) + more)
            return int(self[key])

    def delete_key(self, key: str) -> bool:
        return self.pop(key, None) is not None

    def set_timeout(self, timeout: timedelta) -> None:
        pass
