"""``frameworks.md`` and its heat maps, from the results and from what is known of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

Store = Mapping[str, Any]
MODES = (
    *("token_mean", "sample_mean", "prompt_mean", "constant", "sequence_sum", "token_sum"),
    *("token_mean_legacy", "nonlinear", "calls"),
)
"""Columns of the heat map; ``calls``: of functions that reduce nothing."""
SIGNS = {
    "conforms": "✓",
    "finding": "✗",
    "choice": "≠",
    "edge": "0",
    "refused": "–",
    "cannot be expressed": "–",
    "not run": "·",
}
WORDS = {
    "conforms": "conforms",
    "finding": "finding",
    "choice": "documented choice",
    "edge": "edge case",
    "refused": "refused by the framework, or cannot be expressed",
    "not run": "not run",
}
COLOURS = {
    "light": {"ink": "#1f2328", "paper": "#ffffff", "conforms": "#2da44e", "finding": "#cf222e",
              "choice": "#bf8700", "edge": "#8250df", "refused": "#d0d7de",
              "not run": "#eaeef2", "sign": "#ffffff"},
    "dark": {"ink": "#e6edf3", "paper": "#0d1117", "conforms": "#238636", "finding": "#da3633",
             "choice": "#9e6a03", "edge": "#6e40c9", "refused": "#30363d",
             "not run": "#161b22", "sign": "#ffffff"},
}  # fmt: skip
HEAD = """# What real frameworks do

Written by `python reports/frameworks.py --sources DIR`; do not edit. Each row is one run of
`aggverify check --profile quick` on the framework's own function, from its released wheel or a
checkout. [Stand-ins](../tests/frameworks/standins.py) replace packages that the function does not
use. [frameworks.toml](frameworks.toml) has the targets, [adapters](adapters) how functions without
a convention are called. A finding is a *defect* where a page shows it in plain torch with the
framework's own function. It is *mended* where a later version has other weights, *reported* where
its own tracker has it, and a *choice* where the framework documents it. It is an *edge* where only
a step without tokens or a mode that it lacks shows it, else only what was seen.

<picture>
<source media="(prefers-color-scheme: dark)" srcset="frameworks-dark.svg">
<img src="frameworks-light.svg" alt="Results by framework and mode">
</picture>
"""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a finding: its page, or where it is documented."""

    framework: str
    kind: str
    """``defect`` with a page, ``mended``, ``reported``, ``choice``, or ``edge``: a step without
    tokens, and the like."""
    says: str
    modes: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    """None: all."""
    codes: tuple[str, ...] = ()
    see: str = ""

    def of(self, row: Mapping[str, Any], cell: Mapping[str, Any]) -> bool:
        """Whether it is what that cell shows."""
        return (
            cell["outcome"] == "finding"
            and row["framework"] == self.framework
            and cell["mode"] in (self.modes or (cell["mode"],))
            and row["version"] in (self.versions or (row["version"],))
            and (not self.codes or cell["codes"][0] in self.codes)
        )

    @property
    def told(self) -> str:
        return f"{self.kind}: {self.says}" + (f" ({self.see})" if self.see else "")


def knowledge(folder: Path) -> list[Known]:
    rows = tomllib.loads((folder / "frameworks.toml").read_text(encoding="utf-8"))["known"]
    lists = ("modes", "versions", "codes")
    return [Known(**{k: tuple(v) if k in lists else v for k, v in row.items()}) for row in rows]


def write(store: Store, folder: Path) -> None:
    known = knowledge(folder)
    rows = [row for _, row in sorted(store.items(), key=lambda item: by_version(item[0]))]
    text = "\n".join((*told(rows, known), *absent(folder)))
    (folder / "frameworks.md").write_text(text + "\n", encoding="utf-8")
    for theme, colours in COLOURS.items():
        picture = "\n".join(drawn(rows, known, colours)) + "\n"
        (folder / f"frameworks-{theme}.svg").write_text(picture, encoding="utf-8")


def by_version(name: str) -> list[str | int]:
    """Numbers as numbers: 1.9 comes before 1.10."""
    parts = re.split(r"(\d+)", name.lower())
    return [int(part) if part.isdigit() else part for part in parts]


def told(rows: Sequence[Mapping[str, Any]], known: Sequence[Known]) -> Iterator[str]:
    yield HEAD
    yield counted(rows, known)
    yield "\n| framework | version | function | mode | engine | result | smallest case | known |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        for cell in row["cells"]:
            about = next((k.told for k in known if k.of(row, cell)), cell["why"])
            function = row["function"].partition(":")[2]
            case = f"{cell['case']}: {cell['weights']}".strip(": ")
            parts = (row["framework"], row["version"], f"`{function}`", cell["mode"])
            yield line(*parts, cell["engine"], result(cell), case, about)


def absent(folder: Path) -> Iterator[str]:
    """Frameworks that were tried, and why they have no row."""
    yield "\nNot in the table:\n"
    for row in tomllib.loads((folder / "frameworks.toml").read_text(encoding="utf-8"))["absent"]:
        yield f"- {row['framework']} {row['version']}, `{row['function']}`: {row['why']}."


def counted(rows: Sequence[Mapping[str, Any]], known: Sequence[Known]) -> str:
    every = [outcome(row, cell, known) for row in rows for cell in row["cells"]]
    shares = [(WORDS[word].partition(",")[0], every.count(word)) for word in WORDS]
    of = ", ".join(f"{n} {word}" for word, n in shares if n)
    systems = len({re.split(",| #", row["framework"])[0] for row in rows})
    return f"{len(every)} cells of {systems} frameworks, {len(rows)} states of them: {of}."


def result(cell: Mapping[str, Any]) -> str:
    if cell["outcome"] != "finding":
        return str(cell["outcome"])
    factor = f" × {cell['factor']}" if cell["factor"] else ""
    return f"**{', '.join(cell['codes'])}**{factor}: {cell['bug']}"


def line(*cells: str) -> str:
    return "| " + " | ".join(" ".join(c.replace("|", "\\|").split())[:300] for c in cells) + " |"


HEIGHT, WIDTH, LEFT, TOP = 18, 92, 330, 46


def drawn(
    rows: Sequence[Mapping[str, Any]], known: Sequence[Known], colours: Mapping[str, str]
) -> Iterator[str]:
    """One row a state of a framework, one column a mode."""
    every: dict[str, dict[str, str]] = {}
    for row in rows:
        name = f"{row['framework']} {row['version']}"
        for cell in row["cells"]:
            every.setdefault(name, {})[cell["mode"]] = outcome(row, cell, known)
    used = [mode for mode in MODES if any(mode in cells for cells in every.values())]
    width, height = LEFT + WIDTH * len(used) + 10, TOP + HEIGHT * len(every) + 34
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    yield "<title>Results by framework and mode</title>"
    yield f"<style>text {{ font: 11px sans-serif; fill: {colours['ink']} }}</style>"
    yield f'<rect width="{width}" height="{height}" fill="{colours["paper"]}"/>'
    for n, mode in enumerate(used):
        yield text(LEFT + WIDTH * (n + 0.5), TOP - 8, mode.replace("_", " "), "middle")
    for k, (name, cells) in enumerate(every.items()):
        top = TOP + HEIGHT * k
        yield text(LEFT - 8, top + 13, name, "end")
        for n, mode in enumerate(used):
            if mode in cells:
                yield square(LEFT + WIDTH * n, top, cells[mode], colours)
    for n, kind in enumerate(WORDS):
        left = 12 + n * 175
        yield square(left, height - 26, kind, colours, 20)
        yield text(left + 26, height - 13, WORDS[kind].partition(",")[0], "start")
    yield "</svg>"


def outcome(row: Mapping[str, Any], cell: Mapping[str, Any], known: Sequence[Known]) -> str:
    kind = next((k.kind for k in known if k.of(row, cell)), "")
    if kind in ("choice", "edge"):
        return kind
    found = str(cell["outcome"])
    return "refused" if found == "cannot be expressed" else found


def square(
    left: float, top: float, kind: str, colours: Mapping[str, str], width: int = WIDTH
) -> str:
    box = f'<rect x="{left + 1}" y="{top + 1}" width="{width - 2}" height="{HEIGHT - 2}" '
    box += f'fill="{colours[kind]}"/>'
    return box + text(left + width / 2, top + 13, SIGNS[kind], "middle", colours["sign"])


def text(x: float, y: float, what: str, anchor: str, colour: str = "") -> str:
    fill = f' style="fill: {colour}"' if colour else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{fill}>{escape(what)}</text>'
