"""What the site says of the code's own parts, made from the code: the directive ``generated``.

`````{generated} convention verl````` stands for the lines of ``PARTS["convention"]("verl")``, which
are Markdown. A page for each code is written into ``docs/codes`` before the site is built.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

import aggverify
from aggverify.checks import CHECKS
from aggverify.cli import commands
from aggverify.codes import CODES, Code, Effect, Example
from aggverify.codes.explanations import explanations
from aggverify.conventions import CONVENTIONS, Convention, Offer
from aggverify.conventions.features import FEATURES
from aggverify.engines import ENGINES, formulas
from aggverify.execution.options import OPTIONS
from aggverify.oracles import FAMILIES, LEGACY, MODES, OBJECTIVES, PAIRED, mode, objective
from aggverify.report.tables import modes_text

Lines = Iterator[str]
MODE_COLUMNS = (
    *("sample_mean", "prompt_mean", "token_mean", "constant", "sequence_sum", "token_sum"),
    LEGACY.name,
)
_PROMISED = frozenset({"whole-groups"})
_OFFER = Offer("f", ("prompt_boundaries",))


def row(*cells: object) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(" ".join(str(c).replace("|", "\\|").split()) for c in cells) + " |"


def head(*cells: str) -> Lines:
    """The head of a Markdown table."""
    yield row(*cells)
    yield "|---" * len(cells) + "|"


# Conventions and modes


def convention(*names: str) -> Lines:
    """How each is called and identified, what it cannot show, and what is not exercised."""
    for name in names:
        how = CONVENTIONS[name]
        yield f"**`{name}`**: {how.title}"
        yield ""
        yield f"- called as `{how.signature}`"
        if name == "native" or how.returns != CONVENTIONS["native"].returns:
            yield f"- returns {how.returns}"
        yield from (f"- mode `{m}` never: {why}" for m, why in getattr(how, "never", {}).items())
        wrong = getattr(how, "always_wrong", {})
        yield from (f"- mode `{m}` is never right: {why}" for m, why in wrong.items())
        yield from (f"- note: {note}" for note in how.notes)
        if how.not_claimed:
            yield ""
            yield from head("not claimed", "that is", "why")
            for feature, why in how.not_claimed.items():
                yield row(f"`{feature}`", FEATURES.get(feature, ""), why)
        yield ""


def conventions() -> Lines:
    """One row each."""
    yield from head("convention", "what it is", "signature", "engine by default")
    for how in CONVENTIONS.values():
        asked = how.modes(_OFFER) or (None,)
        usual = dict.fromkeys(how.default_engine(m) for m in asked)
        engines = ", ".join(f"`{e}`" for e in usual)
        yield row(f"`{how.name}`", how.title, f"`{how.signature}`", engines or "none")


def right_engines(how: Convention, mode: str, claimed: frozenset[str]) -> list[str]:
    """Those under which the cell can be right, the default first."""
    usual = how.default_engine(mode)
    every = dict.fromkeys([*(e.name for e in formulas()), usual])
    right = [name for name in every if how.why_not(mode, name, claimed) is None]
    return sorted(right, key=lambda name: name != usual)


def cell(how: Convention, mode: str, notes: list[str]) -> str:
    """One cell of the table of conventions and modes; its reason goes into ``notes``."""
    why = getattr(how, "always_wrong", {}).get(mode, "")
    if mode in how.modes(_OFFER) and not why:
        right = right_engines(how, mode, frozenset())
        if right:
            every = len(right) == len(formulas())
            return "any engine" if every else ", ".join(f"`{e}`" for e in right)
    if mode not in how.modes(_OFFER) and mode not in getattr(how, "never", {}):
        return "–"
    promised = right_engines(how, mode, _PROMISED)
    text = f"with `--group-size`: `{promised[0]}`" if promised else "never"
    text = "never right" if why else text
    why = why or how.why_not(mode, how.default_engine(mode), frozenset()) or ""
    if why not in notes:
        notes.append(why)
    return f"{text} ({notes.index(why) + 1})"


def cells() -> Lines:
    """Conventions by modes: the engines under which the mode can be right."""
    notes: list[str] = []
    yield from head("convention", *(f"`{mode}`" for mode in MODE_COLUMNS))
    for how in CONVENTIONS.values():
        yield row(f"`{how.name}`", *(cell(how, m, notes) for m in MODE_COLUMNS))
    yield ""
    yield from (f"{n}. {why}" for n, why in enumerate(notes, 1))


def modes() -> Lines:
    """Formula, source and the names that frameworks have for each."""
    yield from head("mode", "weight of an unmasked token", "source", "names elsewhere")
    for name in (*MODES, *FAMILIES, *PAIRED, *OBJECTIVES, LEGACY.name):
        found = LEGACY if name == LEGACY.name else objective(name) or mode(name)
        names = "; ".join(f"{f}: {', '.join(n)}" for f, n in found.names.items())
        formula = getattr(found, "formula", "") or mode(f"{name}(2)").formula
        yield row(f"`{name}`", formula, getattr(found, "citation", ""), names)


def worked() -> Lines:
    """What ``aggverify modes`` prints of a ragged example, and the readings of the policy."""
    lines = modes_text()
    start = next(n for n, line in enumerate(lines) if line.startswith("A ragged example"))
    yield from ("```", *lines[start:], "```")


# Engines


def engines() -> Lines:
    """The formula of each, who trains with it, and what the reducer returns."""
    yield from head("engine", "your trainer", "as in", "update", "the reducer returns")
    for engine in ENGINES.values():
        if engine.deviates is None:
            name = f"`{engine.name}`"
            yield row(name, engine.does, engine.trainers, engine.title, engine.required)


def deviations() -> Lines:
    """Engines that do not do what a reducer may expect."""
    yield from head("engine", "instead of", "this trainer", "seen", "usual fix")
    for engine in ENGINES.values():
        if (how := engine.deviates) is not None:
            usual = " or ".join(f"`{name}`" for name in how.usual)
            yield row(f"`{engine.name}`", usual, how.instead, how.seen, how.fix)


# Checks and codes


def checks() -> Lines:
    """Every check, what it holds, and the codes it finds."""
    found = explanations()
    yield from head("check", "holds", "test", "codes")
    for check in CHECKS:
        codes = [c for c, e in found.items() if any(x.check == check.name for x in e.examples)]
        links = ", ".join(f"[{c}](../codes/{c}.md)" for c in codes)
        asked = f" (with `--step {check.only_with}`)" if check.only_with else ""
        yield row(f"`{check.name}`", check.title + asked, check.tests, links)


EFFECTS = {
    Effect.FAILS: "a failure: exit code 1",
    Effect.HAZARD: "a hazard: shown in full, exit code 0 unless claimed",
    Effect.WARNING: "a warning: it never changes the exit code",
}


def codes() -> Lines:
    """Every code in one line."""
    yield from head("code", "what it means", "effect")
    for code in CODES.values():
        yield row(f"[{code.code}]({code.code}.md)", code.title, code.effect.value)


def code_page(code: Code) -> Lines:
    """The page of one code, from what ``aggverify explain`` prints."""
    entry = explanations()[code.code]
    yield f"# {code.code}: {code.title}"
    yield ""
    yield f"*{EFFECTS[code.effect]}*"
    yield ""
    yield entry.meaning
    for example in entry.examples:
        yield ""
        yield from _example(example)
    if entry.bugs:
        yield from ("", "## Where it happened", "")
        yield from (f"- {bug}" for bug in entry.bugs)
    yield from ("", "## Usual fix", "", entry.fix, "")
    yield f"On the command line: `aggverify explain {code.code}`."


def _example(example: Example) -> Lines:
    yield f"## Smallest example of `{example.check}`"
    for text in filter(None, (example.reducer, example.against_reducer)):
        yield from ("", "```python", text.strip(), "```", "")
    if not example.mode:
        yield f"Convention `{example.convention}`."
        return
    divisor = "" if example.divisor is None else f", divisor {example.divisor:g}"
    yield f"- mode `{example.mode}`{divisor}, engine `{example.engine}`, `{example.convention}`"
    step = example.step or f"one sample of {example.ones:,} tokens"
    yield f"- step `{step}`, micro-batches `{example.micro_batches}`, {example.dtype}"
    if example.cp > 1:
        yield f"- context-parallel size {example.cp} ({example.cp_kind})"
    if example.expected is not None:
        token, actual = example.token, example.actual
        yield f"- weight of response token {token}: expected {example.expected}, actual {actual}"


# Options, settings and documents


def _commands() -> Mapping[str, click.Command]:
    return dict(sorted(commands.commands.items()))


def options(name: str) -> Lines:
    """Usage and options of one command."""
    command = _commands()[name]
    context = click.Context(command, info_name=f"aggverify {name}")
    yield from ("```", command.get_usage(context), "```", "")
    yield from inspect.cleandoc((command.help or "").replace("\b", "")).splitlines()
    yield ""
    subcommands = getattr(command, "commands", {})
    yield from (f"- `{sub}`: {c.get_short_help_str(200)}" for sub, c in subcommands.items())
    records = [r for p in command.get_params(context) if (r := p.get_help_record(context))]
    if records:
        yield ""
        yield from head("option", "what it does")
        yield from (row(f"`{flags}`", text) for flags, text in records)


def all_options() -> Lines:
    """Every command with its options."""
    for name in _commands():
        yield from (f"## aggverify {name}", "", *options(name), "")


def settings() -> Lines:
    """Which options a project or a file may set."""
    yield from head("key", "may be set", "what it does")
    for option in OPTIONS:
        if option.where.value != "nowhere":
            yield row(f"`{option.key}`", option.where.value, option.help)


def document(name: str) -> Lines:
    """Every object of a schema that ships, with its fields."""
    schema = json.loads((files("aggverify") / "schema" / f"{name}.json").read_text("utf-8"))
    root = schema.get("$ref", "").rpartition("/")[2]
    objects = {root or "Document": schema.get("$defs", {}).get(root, schema), **schema["$defs"]}
    for title, found in objects.items():
        if "properties" not in found:
            continue
        yield from (f"## {title}", "", found.get("description", ""), "")
        yield from head("field", "type", "required")
        needed = found.get("required", ())
        for key, value in found["properties"].items():
            yield row(f"`{key}`", _kind(value, schema["$defs"]), "yes" if key in needed else "")
        yield ""


def _kind(value: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """What a value may be, in words; of the ``known`` definitions those of objects are linked."""
    if "$ref" in value:
        target = value["$ref"].rpartition("/")[2]
        if target in known and "properties" not in known[target]:
            return _kind(known[target], known)
        return target if target.endswith(".json") else f"[{target}](#{target.lower()})"
    if "enum" in value:
        return ", ".join(f"`{json.dumps(v)}`" for v in value["enum"])
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    for many in ("anyOf", "oneOf"):
        if many in value:
            return " or ".join(_kind(v, known) for v in value[many])
    if value.get("type") == "array":
        of = value.get("items") or value.get("prefixItems")
        return f"list of {_kind(of, known)}" if isinstance(of, dict) else "list"
    if isinstance(value.get("additionalProperties"), dict):
        return f"mapping of names to {_kind(value['additionalProperties'], known)}"
    kind = value.get("type", "anything")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def python() -> Lines:
    """Every public name of ``import aggverify``, from its docstring."""
    yield from ("```{eval-rst}", "")
    for name, module in vars(aggverify)["_FROM"].items():
        found = getattr(aggverify, name)
        place = f"{module}.{found.__name__}"
        if isinstance(found, type):
            yield from (f".. autoclass:: {place}", "   :members:", "")
        else:
            yield from (f".. autofunction:: {place}", "")
    yield "```"


def glossary() -> Lines:
    """``glossary.toml``, a table for each of its parts."""
    text = (Path(__file__).parents[1] / "glossary.toml").read_text(encoding="utf-8")
    for part, words in tomllib.loads(text).items():
        yield from (f"## {part.replace('_', ' ').capitalize()}", "")
        yield from head("word", "meaning")
        yield from (row(word, meaning) for word, meaning in words.items())
        yield ""


PARTS: Mapping[str, Callable[..., Lines]] = {
    part.__name__: part
    for part in (
        *(convention, conventions, cells, modes, worked, engines, deviations),
        *(checks, codes, options, all_options, settings, document, python, glossary),
    )
}


class Generated(SphinxDirective):
    """Stands for lines that one of the functions above makes."""

    required_arguments = 1
    optional_arguments = 99

    def run(self) -> list[nodes.Node]:
        """Parse them where it stands; whenever the site is built, as the code may have changed."""
        self.env.note_reread()
        name, *given = self.arguments
        lines = [line for part in PARTS[name](*given) for line in part.split("\n")]
        source = f"generated {name}"
        node = nodes.section()
        node.document = self.state.document
        self.state.nested_parse(StringList(lines, source=source), 0, node, match_titles=True)
        return node.children


_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)]*)?\)")


def name_files(app: Sphinx, docname: str, source: list[str]) -> None:
    """A link to a file of the repository that is no page becomes the file's path."""
    here = (Path(app.srcdir) / docname).parent

    def named(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = (here / target).resolve()
        if path.is_relative_to(app.srcdir):
            return link[0]
        if not path.exists():
            raise ExtensionError(f"{docname}: no file {target}")
        name = str(path.relative_to(Path(app.srcdir).parent))
        return f"`{name}`" if text.strip("`") == name else f"{text} (`{name}`)"

    source[0] = _LINK.sub(named, source[0])


def write_code_pages(app: Sphinx) -> None:
    """One page a code, and nothing of codes that are no more."""
    folder = Path(app.srcdir) / "codes"
    folder.mkdir(exist_ok=True)
    pages = {f"{code.code}.md": "\n".join(code_page(code)) + "\n" for code in CODES.values()}
    for stale in {p.name for p in folder.glob("AGV*.md")} - set(pages):
        (folder / stale).unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


PALETTE = {
    "#1f2328": "#e6edf3",
    "#59636e": "#9198a1",
    "#ffffff": "#131416",
    "#f6f8fa": "#1c2128",
    "#0969da": "#4493f8",
    "#cf222e": "#f85149",
    "#1a7f37": "#3fb950",
}
"""Colours of a drawing, light and dark."""


def write_dark_drawings(app: Sphinx) -> None:
    """Each drawing once more in dark colours."""
    folder = Path(app.srcdir) / "drawings"
    (folder / "dark").mkdir(exist_ok=True)
    for path in folder.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        for light, dark in PALETTE.items():
            text = text.replace(light, dark)
        (folder / "dark" / path.name).write_text(text, encoding="utf-8")


class BothThemes(SphinxTransform):
    """A drawing is shown in the colours of the theme."""

    default_priority = 10

    def apply(self, **kwargs: Any) -> None:
        """Before images are collected."""
        for image in list(self.document.findall(nodes.image)):
            if image["uri"].startswith("drawings/"):
                dark = image.deepcopy()
                dark["uri"] = image["uri"].replace("drawings/", "drawings/dark/")
                dark["classes"].append("only-dark")
                image["classes"].append("only-light")
                image.parent.insert(image.parent.index(image) + 1, dark)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_directive("generated", Generated)
    app.connect("builder-inited", write_code_pages)
    app.connect("builder-inited", write_dark_drawings)
    app.connect("source-read", name_files)
    app.add_transform(BothThemes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
