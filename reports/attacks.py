"""What ``reports/containment.py`` tries: poor surroundings, and code that means harm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RIGHT = "examples/native/sum/token_mean.py"
EXAMPLES = {
    RIGHT: 0,
    "examples/broken/micro_batch_token_mean.py": 1,
    "examples/hazards/slime_sample_mean.py": 0,
    "examples/nonlinear/gspo.py": 0,
    "examples/policy_loss/token_mean.py": 0,
    "examples/slime/refusing/constant.py": 0,
    "examples/slime/sample_mean.py": 0,
    "examples/trainer/engine.py": 0,
}
"""Those that the README tells of, and the exit code of each in usual surroundings."""
OPTIONS = ("--profile", "quick", "--max-examples", "3", "--report", "json")


@dataclass(frozen=True, slots=True)
class Attack:
    """One row: a reducer in some surroundings, and the exit codes that are right there."""

    name: str
    codes: tuple[int, ...]
    source: str
    """A file below the project, or the text of one."""
    says: str = ""
    """Regular expression of what must be told where the code is not 0."""
    wrapped: tuple[str, ...] = ()
    """A command that runs the one behind it."""
    pids: int = 1500
    memory: int = 6 << 30
    options: tuple[str, ...] = OPTIONS
    asked: int = 60
    """Seconds that the command is given."""

    @property
    def text(self) -> str:
        """Of the reducer's file."""
        path = ROOT / self.source
        return path.read_text() if self.source.endswith(".py") else self.source


def shell(line: str) -> tuple[str, ...]:
    """A shell line that ends with ``"$@"``, the command."""
    return ("sh", "-c", line, "sh")


BURNERS = (
    "p=; n=$(awk '{print int(20 - $1)}' /proc/loadavg); "
    'for i in $(seq 1 "$n"); do sh -c "while :; do :; done" >/dev/null 2>&1 & p="$p $!"; done; '
    '"$@"; c=$?; test -z "$p" || kill $p; exit $c'
)
SHM = 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"'
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
BRIEF = ("--profile", "quick", "--max-examples", "1", "--report", "json")
SMALL, LARGE = (*BRIEF, "--world", "4"), (*BRIEF, "--world", "8")
SANDBOX = (*OPTIONS, "--sandbox", "--mode", "token_mean", "--engine", "sum")
FEW = " (two examples)"
SURROUNDINGS: tuple[tuple[str, tuple[str, ...], dict[str, int]], ...] = (
    ("a load of 20", shell(BURNERS), {}),
    ("nice 19", ("nice", "-n", "19"), {}),
    ("64 open files", shell('ulimit -n 64; exec "$@"'), {}),
    ("24 open files", shell('ulimit -n 24; exec "$@"'), {}),
    ("no HOME", ("env", "-u", "HOME"), {}),
    ("a TMPDIR that cannot be written", ("env", "TMPDIR=/proc"), {}),
    ("64 KiB of /dev/shm", ("unshare", "-m", *shell(SHM)), {}),
    ("1 GiB of memory", (), {"memory": 1 << 30}),
    ("another user", NOBODY, {}),
    ("no loopback interface", ("unshare", "-n"), {}),
    ("pids.max 200, worlds of 8", (), {"pids": 200}),
    (f"pids.max 60, worlds of 8{FEW}", (), {"pids": 60}),
    (f"pids.max 8{FEW}", (), {"pids": 8}),
    (f"a sandbox{FEW}", (), {}),
    (f"a sandbox of another user{FEW}", NOBODY, {}),
)


def surrounded() -> list[Attack]:
    """Every example in each, or the first two: a right one and a wrong one."""
    found = []
    for name, wrapped, more in SURROUNDINGS:
        options = LARGE if "worlds" in name else SMALL
        if "sandbox" in name:
            options = (*SMALL, "--sandbox")
        for source, code in list(EXAMPLES.items())[: 2 if FEW in name else None]:
            codes = tuple(sorted({code, 2}))
            found.append(
                Attack(name, codes, source, "", wrapped, options=options, asked=90, **more)  # type: ignore[arg-type]
            )
    return found


BODY = "\n\n\ndef reduce(losses, batch):\n    act()\n    return _reduce(losses, batch)\n"
REACH = """import os, socket, stat, struct, threading, time

def connections():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.stat(int(name)).st_mode):
                found = socket.socket(fileno=os.dup(int(name)))
                if found.family == socket.AF_UNIX:
                    yield found
        except OSError:
            continue

def frame(text):
    return struct.pack("<II", len(text), 0) + text

def say(data):
    for connection in connections():
        connection.sendall(data)
"""


def acting(act: str, before: str = "") -> str:
    """A right reducer that does something else at every call; ``before``: when imported."""
    body = (ROOT / RIGHT).read_text().replace("def reduce(", "def _reduce(")
    return f"import os, signal, sys\n{before}\n{body}\n\n\ndef act():\n    {act}{BODY}"


FRAME = 'say(frame(b"{}"))'
FLOOD = """say(frame(b'{"data":{},"trace":[],"sequences":{}}') * 100000)"""
TRICKLE = "drop()"
DROP = (
    REACH
    + """
def bytewise(c):
    c.sendall(struct.pack("<II", 9, 99))
    while True:
        c.sendall(b" ")
        time.sleep(0.01)

def drop():
    for c in connections():
        threading.Thread(target=bytewise, args=[c], daemon=True).start()
    time.sleep(3600)
"""
)
SLATE = (
    REACH
    + """
def cut():
    for name in os.listdir("/proc/self/fd"):
        try:
            if "memfd:flight_recorder" in os.readlink("/proc/self/fd/" + name):
                os.ftruncate(int(name), 0)
        except OSError:
            continue
    os._exit(3)
"""
)
HOLD = """import os, time

def hold():
    for _ in range(30):
        if os.fork() == 0:
            held = b"x" * (400 << 20)
            time.sleep(600)
    time.sleep(600)
"""
THREADS = """import os, threading, time

def crowd():
    for _ in range(20):
        if os.fork() == 0:
            while True:
                try:
                    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
                except (RuntimeError, MemoryError):
                    time.sleep(600)
    time.sleep(600)
"""
MEMFDS = """import os

kept = []

def keep():
    while True:
        kept.append(os.memfd_create("kept"))
        os.write(kept[-1], b"x" * (64 << 20))
"""
SHADOWED = (ROOT / RIGHT).read_text()
CROWD = "starts processes without end"
DIED = r"(exited with status|was ended by|sent what is no answer)"
HOSTILE = (
    Attack("forks at every call, the child returns", (0, 1, 2), acting("os.fork()"), pids=400),
    Attack("forks without end", (1,), acting("while True: os.fork()"), CROWD, pids=400),
    Attack(
        "forks without end when imported", (2,), acting("pass", "while True: os.fork()"), CROWD,
        pids=400,
    ),
    Attack(
        "forks without end, of another user", (1,), acting("while True: os.fork()"), CROWD,
        NOBODY, pids=400,
    ),
    Attack(
        "prints 50 MB at every call", (0, 1, 2),
        acting("[print('y' * 10**6) for _ in range(50)]"),
    ),
    Attack(
        "leaves a spinning thread at every call", (0, 1, 2),
        acting("threading.Thread(target=spin, daemon=True).start()",
               "import threading\ndef spin():\n    while True: pass"),
    ),
    Attack(
        "starts threads without end, in processes", (1,), acting("crowd()", THREADS),
        "starts (threads|processes) without end", pids=2000,
    ),
    Attack(
        "prints without end", (1,), acting("while True: print('y' * 10**6)"),
        "prints without end", memory=3 << 30,
    ),
    Attack(
        "prints without end when imported", (2,),
        acting("pass", "while True: print('y' * 10**6)"), "prints without end", memory=3 << 30,
    ),
    Attack("allocates without end", (1,), acting("x = [bytearray(1 << 26) for _ in range(10**6)]")),
    Attack(
        "starts processes that hold 400 MiB each", (1,), acting("hold()", HOLD),
        "takes memory without end", pids=400,
    ),
    Attack("kills its parent", (1, 2), acting("os.kill(os.getppid(), signal.SIGKILL)")),
    Attack("stops itself", (1,), acting("os.kill(os.getpid(), signal.SIGSTOP)")),
    Attack("stops its parent", (0, 1, 2), acting("os.kill(os.getppid(), signal.SIGSTOP)")),
    Attack("leaves by status 0", (1,), acting("os._exit(0)"), "exited with status 0"),
    Attack("says something that is no answer", (1,), acting(FRAME, REACH), DIED),
    Attack("answers without end", (1,), acting(FLOOD, REACH), DIED),
    Attack("answers a byte at a time", (1,), acting(TRICKLE, DROP), f"sleeps or waits|{DIED}"),
    Attack("cuts off its flight recorder", (1,), acting("cut()", SLATE), DIED),
    Attack(
        "answers when imported", (2,), acting("pass", REACH + FRAME), "sent what is no answer"
    ),
    Attack(
        "ignores SIGCHLD when imported", (0,),
        acting("pass", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"),
    ),
    Attack(
        "raises at random", (1,), acting("1 / (os.urandom(1)[0] > 9)"),
        "passes and fails",
    ),
    Attack(
        "keeps files in memory without end", (1,), acting("keep()", MEMFDS),
        "in memfd files|takes memory without end", memory=3 << 30,
    ),
    Attack(
        "a module of its own is named json", (2,), SHADOWED, "in place of Python.s own",
        shell('echo "raise ImportError" > json.py; exec "$@"'),
    ),
    Attack(
        "writes commands of a workflow", (1,),
        acting(r"raise ValueError('\n::error file=x::forged')"),
        r"(?m)\A(?!.*^::error file=x::forged)",
        options=(*OPTIONS, "--github"),
    ),
    Attack("reads what is typed", (0, 1), acting("sys.stdin.read()")),
    Attack("closes every file", (1,), acting("os.closerange(0, 256)"), DIED),
    Attack(
        "forks without end, in a sandbox", (1,), acting("while True: os.fork()"), CROWD,
        pids=400, options=SANDBOX,
    ),
    Attack(
        "writes to HOME, in a sandbox", (1,),
        acting(f"open({str(Path.home())!r} + '/made', 'w')"), "Read-only file system|No such file",
        options=SANDBOX,
    ),
    Attack(
        "opens a connection, in a sandbox", (1,),
        acting("socket.create_connection(('192.0.2.1', 80), 5)", "import socket"),
        "Network is unreachable", options=SANDBOX,
    ),
    Attack(
        "reads a key of the person's, in a sandbox", (1,),
        acting(f"open({str(Path.home())!r} + '/.ssh/id_rsa')"), "No such file", options=SANDBOX,
    ),
    Attack(
        "reads a secret of the environment, in a sandbox", (1,), acting("os.environ['SECRET']"),
        "KeyError", ("env", "SECRET=1"), options=SANDBOX,
    ),
    Attack(
        "ends every process it may, in a sandbox", (1, 2), acting("os.kill(-1, signal.SIGKILL)"),
        options=SANDBOX,
    ),
)  # fmt: skip
