"""``python reports/containment.py [NAME...]`` writes ``reports/containment.md``: poor surroundings
and code that means harm, what must come of each, and what did. Exits 1 if any was otherwise.

Everything runs in control groups with few processes and little memory, a few at a time. With names
only those are run, and the others' rows stay as they are. ``python benchmarks/fuzz_files.py`` makes
the figure at its end.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "containment.md"
FUZZED = ROOT / "reports" / "fuzzed.txt"
AT_ONCE = 3
sys.path.insert(0, str(ROOT))

from tests.caged import Ran, cage  # noqa: E402

RIGHT, WRONG = "examples/native/sum/token_mean.py", "examples/broken/micro_batch_token_mean.py"
SECONDS = 300
"""A wait without end, for this report."""
OPTIONS = ("--profile", "quick", "--max-examples", "3")
RIGHT_OR_SENTENCE, WRONG_OR_SENTENCE = (0, 2), (1, 2)
HEAD = """# What it stands

Poor surroundings and code that means harm, each in a control group of its own: what must come of
it, and what did. Written by `python reports/containment.py`; times depend on the machine. Exit
codes: 0 conforms, 1 findings, 2 could not judge, with a sentence. What holds when processes are
ended or stopped is in `tests/world/test_ended.py`.

| attack | expected | seen | exit code | seconds |
|---|---|---|---|---|
"""


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
LARGE = (*OPTIONS, "--world", "8")
MINUTE = (*OPTIONS, "--max-time", "60")
SANDBOX = (*OPTIONS, "--sandbox", "--mode", "token_mean", "--engine", "sum")
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
    ("pids.max 60, worlds of 8", (), {"pids": 60}),
    ("pids.max 8", (), {"pids": 8}),
    ("a sandbox", (), {}),
    ("a sandbox of another user", NOBODY, {}),
)


def surrounded() -> list[Attack]:
    """A right and a wrong reducer in each."""
    found = []
    for name, wrapped, limits in SURROUNDINGS:
        options = LARGE if "worlds" in name else SANDBOX if "sandbox" in name else OPTIONS
        for what, source, codes in (
            ("right", RIGHT, RIGHT_OR_SENTENCE),
            ("wrong", WRONG, WRONG_OR_SENTENCE),
        ):
            found.append(
                Attack(
                    f"{name}, a {what} reducer",
                    codes,
                    source,
                    "",
                    wrapped,
                    options=options,
                    **limits,
                )  # type: ignore[arg-type]
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
            if "memfd:slate" in os.readlink("/proc/self/fd/" + name):
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
        "prints 50 MB at every call, in a minute", (0, 1, 2),
        acting("[print('y' * 10**6) for _ in range(50)]"), options=MINUTE,
    ),
    Attack(
        "leaves a spinning thread at every call, in a minute", (0, 1, 2),
        acting("threading.Thread(target=spin, daemon=True).start()",
               "import threading\ndef spin():\n    while True: pass"),
        options=MINUTE,
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
    Attack("cuts off its slate", (1,), acting("cut()", SLATE), DIED),
    Attack(
        "answers when imported", (2,), acting("pass", REACH + FRAME), "sent what is no answer"
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


def others() -> str:
    """An interpreter that other users may run: this one, or else the system's."""
    real = Path(sys.executable).resolve()
    if all(each.stat().st_mode & 1 for each in (real, *real.parents)):
        return sys.executable
    return f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"


def run(attack: Attack, folder: Path) -> tuple[Ran, float]:
    """What came of it, and the seconds."""
    file = folder / "r.py"
    file.write_text(attack.text)
    folder.chmod(0o777)
    python = others() if attack.wrapped == NOBODY else sys.executable
    packages = [entry for entry in sys.path if entry.endswith("-packages")]
    command = [python, "-m", "aggverify", "check", "r.py", *attack.options]
    began = time.monotonic()
    with cage(attack.pids, attack.memory) as made:
        found = made.run(
            ["timeout", "-k", "5", str(SECONDS), *attack.wrapped, *command],
            folder,
            {"PYTHONPATH": ":".join([str(ROOT), *packages]), "COLUMNS": "100"},
        )
    return found, time.monotonic() - began


def judged(attack: Attack, found: Ran) -> str:
    """Empty where all is as it must be."""
    if found.left:
        return f"{len(found.left)} processes left"
    if found.code not in attack.codes:
        return f"exit code {found.code}"
    if "Traceback" in found.text and found.code == 2:
        return "a traceback"
    if attack.says and not re.search(attack.says, found.text):
        return f"does not say {attack.says!r}"
    if found.code == 2 and not re.search(r"error: |not judged|incomplete|could not", found.text):
        return "no sentence"
    return ""


TELLING = (r"^aggverify: error: (.*)", r"^ *(rank \d+.*)", r"warning +(AGVW19.*)", r"^─+ (.+?) ─+$")


def seen(found: Ran) -> str:
    """The line that says most of what came of it; folders of this run left out."""
    text = re.sub(r"/tmp/tmp\w+/", "", found.text)
    text = re.sub(r"aggverify-[0-9a-f]{32}", "…", text)
    lines = (re.search(pattern, text, re.MULTILINE) for pattern in TELLING)
    line = next((each[1] for each in lines if each is not None), "").replace(str(Path.home()), "~")
    return line.strip()[:160].replace("|", "\\|")


def row(attack: Attack, found: Ran, seconds: float) -> str:
    """One row of the table."""
    expected = " or ".join(map(str, attack.codes))
    said = f", says `{attack.says}`".replace("|", "\\|") if attack.says else ""
    wrong = judged(attack, found)
    told = f"**{wrong}**: {seen(found)}" if wrong else seen(found)
    return f"| {attack.name} | {expected}{said} | {told} | {found.code} | {seconds:.0f} |\n"


def main(names: list[str], tell: Callable[[str], None] = print) -> int:
    """Run all, or those whose name has one of these in it, and write the report."""
    attacks = [*surrounded(), *HOSTILE]
    old = REPORT.read_text(encoding="utf-8") if names and REPORT.exists() else ""
    found_rows = re.finditer(r"^\| ([^|]+?) \|.*\n", old, re.MULTILINE)
    rows = {each[1]: each[0] for each in found_rows}
    wanted = [a for a in attacks if not names or any(name in a.name for name in names)]
    failed = 0
    with ThreadPoolExecutor(AT_ONCE) as several:
        for attack, (found, seconds) in zip(wanted, several.map(ran, wanted), strict=True):
            failed += bool(judged(attack, found))
            rows[attack.name] = row(attack, found, seconds)
            tell(rows[attack.name].strip())
            kept = [rows[each.name] for each in attacks if each.name in rows]
            fuzzed = f"\n{FUZZED.read_text()}" if FUZZED.exists() else ""
            REPORT.write_text(HEAD + "".join(kept) + fuzzed, encoding="utf-8")
    return min(failed, 1)


def ran(attack: Attack) -> tuple[Ran, float]:
    """The same in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return run(attack, Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
