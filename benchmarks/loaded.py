"""One check on the machine as it is, and beside processes that burn its processors.

    python benchmarks/loaded.py [BURNERS]

Both must write the same document: what ranks wait for a processor is not counted. Exits 1 where
they do not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "native" / "sum" / "token_mean.py"
BURNERS = 20
BURN = [sys.executable, "-c", "while True: pass"]


def checked(folder: Path, burners: int) -> tuple[float, int, str]:
    """Seconds, steps and the document of a default check beside so many."""
    command = [sys.executable, "-m", "aggverify", "check", str(EXAMPLE), "--report", "json"]
    burning = [subprocess.Popen(BURN) for _ in range(burners)]
    try:
        began = time.monotonic()
        subprocess.run([*command, "--report-dir", str(folder)], check=True, capture_output=True)
        seconds = time.monotonic() - began
    finally:
        for one in burning:
            one.kill()
            one.wait()
    text = (folder / "verdict.json").read_text()
    return seconds, json.loads(text)["verdicts"][0]["executed"], text


def main(burners: int) -> int:
    """Print both, and whether their documents are the same."""
    documents = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in (0, burners):
            seconds, steps, text = checked(Path(folder, str(number)), number)
            documents.add(text)
            print(f"beside {number} that burn: {steps:,} steps in {seconds:.0f} s")
    same = len(documents) == 1
    print("the same document" if same else "two different documents")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else BURNERS))
