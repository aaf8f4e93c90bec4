"""The pages that people get, as a browser shows them, in ``docs/pictures``.

``python reports/browser.py``

needs Chromium (or Chrome) beside this project: ``CHROMIUM`` names it where it has another name.
The report is that of a broken example; the comparison one of ``reports/pull_requests.py``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reports.pull_requests import told  # noqa: E402

BROKEN = ROOT / "examples" / "broken" / "cp_shard_sample_mean.py"
PHONE, NARROWEST = 390, 500
"""Pixels: a window of a browser is no narrower than this, so a phone's page is framed in one."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass(frozen=True, slots=True)
class Picture:
    """A page, and how much of it is shown."""

    name: str
    page: str
    width: int
    height: int
    dark: bool = False


PICTURES = (
    Picture("report", "report.html", 900, 1340),
    Picture("report_phone_dark", "report.html", PHONE, 1700, dark=True),
    Picture("compare", "compare.html", 1000, 1150),
    Picture("compare_phone_dark", "compare.html", PHONE, 1700, dark=True),
)


def browser() -> str:
    """The program; ends this one where there is none."""
    given = os.environ.get("CHROMIUM")
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    return found or sys.exit("no Chromium: say where it is, in CHROMIUM")


def framed(page: Path, picture: Picture) -> Path:
    """A page of grey with the page in it, as wide as a phone."""
    style = f"border:0;display:block;margin:auto;width:{picture.width}px;height:{picture.height}px"
    frame = page.with_name(f"framed_{page.name}")
    frame.write_text(
        f'<body style="margin:0;background:grey"><iframe src="{page.name}" style="{style}">'
    )
    return frame


def taken(picture: Picture, folder: Path, program: str) -> None:
    """Write the picture of a page that lies in the folder."""
    scheme = 0 if picture.dark else 1
    page = folder / picture.page
    if picture.width < NARROWEST:
        page = framed(page, picture)
    command = [
        *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--window-size={max(picture.width, NARROWEST)},{picture.height}",
        f"--screenshot={ROOT / 'docs' / 'pictures' / picture.name}.png",
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def report(folder: Path) -> None:
    """``report.html`` of the broken example, in a project of its own."""
    for file in (BROKEN, BROKEN.parent / "zigzag.py"):
        if file.exists():
            shutil.copy(file, folder / ("r.py" if file == BROKEN else file.name))
    command = ["check", "r.py", "--profile", "quick", "--report", "html", "--report-dir", "out"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "aggverify", *command], cwd=folder, env=env, check=False)
    shutil.copy(folder / "out" / "report.html", folder / "report.html")


def main() -> None:
    """Make both pages and take all pictures."""
    program = browser()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report(folder)
        (folder / "compare.html").write_text(told("verl", folder, "html"))
        for picture in PICTURES:
            taken(picture, folder, program)


if __name__ == "__main__":
    main()
