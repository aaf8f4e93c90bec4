"""Letters between launched processes, through torch's store.

Each process has a box in the store, with numbered letters, and a counter that it raises once a
second as a sign of life. A letter that was read is deleted, so that the store does not grow. Any
process that can write to the store can write letters.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from aggverify.world import wire
from aggverify.world.faults import PoolError
from aggverify.world.rendezvous import PATIENCE, RankInfo

_PART = 1 << 20
"""Bytes of one value: the store takes no more than 8 MiB."""
_BEAT = 1.0
LOST = 20.0
"""Seconds without a sign after which a process is taken for lost."""
_HELD_UP = 5.0
"""Seconds between two beats of ours above which this process was held up, not the others."""
_LONG = timedelta(days=365)

Deliver = Callable[[dict[str, Any], bytes], None]


def put(store: Any, key: str, data: bytes) -> None:
    """Write a value of any size; the whole of it is there once its first part is."""
    parts = [data[at : at + _PART] for at in range(0, len(data), _PART)]
    for n, part in enumerate(parts[1:]):
        store.set(f"{key}/{n}", part)
    store.set(key, len(parts).to_bytes(4, "little") + b"".join(parts[:1]))


def get(store: Any, key: str) -> bytes:
    """Read such a value, once it is there."""
    first: bytes = store.get(key)
    more = range(int.from_bytes(first[:4], "little") - 1)
    return b"".join([first[4:], *(store.get(f"{key}/{n}") for n in more)])


def delete(store: Any, key: str) -> None:
    """Delete such a value."""
    first: bytes = store.get(key)
    for n in range(int.from_bytes(first[:4], "little") - 1):
        store.delete_key(f"{key}/{n}")
    store.delete_key(key)


class ReadableQueue:
    """A queue that one thread fills; its file is readable while there is something in it."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._waiting: deque[Any] = deque()

    def fileno(self) -> int:
        """Return the number of its file, -1 once it is closed."""
        return self._fd

    def put(self, *what: Any) -> None:
        """Add something; called by the other thread, also after ``close``."""
        with self._lock:
            self._waiting.append(what)
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def take_all(self) -> list[Any]:
        """Take all that is there."""
        with self._lock:
            if self._waiting:
                os.eventfd_read(self._fd)
            return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def close(self) -> None:
        """Close its file; what is put there later is not noticed."""
        with self._lock:
            os.close(self._fd)
            self._fd = -1


class Post:
    """A process's box, and its counter: a thread reads the one, another one raises the other.

    ``deliver`` is called for each letter, ``lost`` with a name, "" for the store, and the reason
    when the store is gone or a process that is watched gives no sign; both by these threads.
    """

    def __init__(
        self, info: RankInfo, name: str, deliver: Deliver, lost: Callable[[str, str], None]
    ) -> None:
        # That the store is gone is reported by ``lost``, not by torch in twenty lines.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        self._part, self._name = info.part, name
        self._deliver, self._lost = deliver, lost
        self.store = info.store()
        self._watched: tuple[str, ...] = ()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        guest = replace(info, serves=False)
        # A connection each: one does one thing at a time, and reading a letter waits for it.
        self._threads = [
            threading.Thread(target=self._guarded, args=(run, guest.store()), daemon=True)
            for run in (self._read, self._beat)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, to: str, header: dict[str, Any], blob: bytes = b"") -> None:
        """Put a letter into a box; raises PoolError where the store is gone."""
        box = f"{self._part}/{to}"
        try:
            with self._lock:
                number = self.store.add(f"{box}/letters", 1)
                put(self.store, f"{box}/{number}", wire.encode(header, blob))
        except RuntimeError as error:
            raise PoolError(_gone(error)) from None

    def watch(self, names: Iterable[str]) -> None:
        """From now on report these processes as lost when their counters stand still."""
        self._watched = tuple(names)

    def close(self) -> None:
        """Read nothing more; the counter stands still."""
        self._closed.set()
        try:
            self.send(self._name, {})  # ends the wait of the thread that reads
        except PoolError:
            return
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_HELD_UP)

    def _guarded(self, run: Callable[[Any], None], store: Any) -> None:
        try:
            run(store)
        except RuntimeError as error:
            if not self._closed.is_set():
                self._lost("", _gone(error))

    def _beats(self, name: str) -> str:
        return f"{self._part}/{name}/beats"

    def _read(self, store: Any) -> None:
        store.set_timeout(_LONG)
        # Before any letter is read: who has answered one is known to have been alive.
        store.add(self._beats(self._name), 1)
        number = 0
        while not self._closed.is_set():
            number += 1
            key = f"{self._part}/{self._name}/{number}"
            data = get(store, key)
            delete(store, key)
            for header, blob in wire.Decoder().feed(data):
                if not self._closed.is_set():
                    self._deliver(header, blob)

    def _beat(self, store: Any) -> None:
        seen: dict[str, tuple[int, float]] = {}
        turn = time.monotonic()
        while not self._closed.wait(_BEAT):
            last, turn = turn, time.monotonic()
            store.add(self._beats(self._name), 1)
            for name in self._watched:
                count = store.add(self._beats(name), 0)
                before, since = seen.get(name, (-1, turn))
                if count != before or turn - last > _HELD_UP:
                    seen[name] = count, turn
                elif turn - since > (LOST if count else PATIENCE):
                    self._lost(name, f"it has given no sign for {LOST:g} s")
                    return


def _gone(error: RuntimeError) -> str:
    return "the launcher's store is gone: " + str(error).partition("\n")[0]
