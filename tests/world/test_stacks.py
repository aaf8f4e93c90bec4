"""The stacks of a process that was stopped are those of where it was stopped."""

from __future__ import annotations

import os
import subprocess
import sys

from aggverify.world import stacks

STOPPED = """
import faulthandler, os, signal, sys, threading
faulthandler.register(int(sys.argv[1]), sys.stdout.fileno(), all_threads=False)
ends = threading.Event()
others = [threading.Thread(target=ends.wait) for _ in range(20)]
for other in others:
    other.start()
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
stop()
ends.set()
for other in others:
    other.join()
"""


def test_the_main_thread_tells_where_it_was_before_it_goes_on() -> None:
    command = [sys.executable, "-c", STOPPED, str(int(stacks.STACK_SIGNAL))]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            os.waitpid(child.pid, os.WUNTRACED)
            stacks.ask(child.pid, wake=True)
            told, _ = child.communicate(timeout=60)
        _, [stack] = stacks.parse(told)
        assert [frame.function for frame in stack.frames] == ["stop", "<module>"], told
