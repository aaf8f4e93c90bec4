"""The command line: one file per command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import atexit
import gc
import sys
import time
from typing import NoReturn

import click

from aggverify.cli import joined, streams, ways_out
from aggverify.cli.audit import audit
from aggverify.cli.check import check
from aggverify.cli.compare import compare
from aggverify.cli.config import config
from aggverify.cli.conventions import conventions
from aggverify.cli.engines import engines
from aggverify.cli.explain import explain
from aggverify.cli.modes import modes
from aggverify.cli.new import new
from aggverify.cli.oracle import oracle
from aggverify.cli.render import render
from aggverify.cli.replay import replay
from aggverify.cli.snapshot import snapshot
from aggverify.cli.versions import print_versions
from aggverify.world.interpreter import SELDOM


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_versions,
    help="Versions of aggverify, Python and torch, and the backends that can be used here.",
)
def commands() -> None:
    """Find the wrong factor in a loss reducer.

    Runs your reducer under real torch.distributed, reads the weight every token gets in the
    update, and compares with exact oracles.

    \b
    Exit codes: 0 conforms, 1 findings, 2 could not judge or nothing was tested, 130 interrupted.
    """


commands.add_command(check)
commands.add_command(audit)
commands.add_command(compare)
commands.add_command(replay)
commands.add_command(snapshot)
commands.add_command(new)
commands.add_command(render)
commands.add_command(oracle)
commands.add_command(modes)
commands.add_command(engines)
commands.add_command(conventions)
commands.add_command(explain)
commands.add_command(config)


def main() -> NoReturn:
    """Entry point: every way out ends in one of the four exit codes."""
    began = time.monotonic()
    gc.set_threshold(SELDOM)
    # The process ends with all that it holds: looking for cycles first takes 0.2 s.
    atexit.register(gc.freeze)
    with streams.guarded(), ways_out.warned(), ways_out.ended_gently():
        code = ways_out.ended(
            lambda: joined.run(began, lambda run: commands.main(standalone_mode=False, obj=run))
        )
        if (why := streams.lost()) is not None:
            ways_out.complain(f"error: cannot write to standard output: {why}")
            code = code or ways_out.NO_JUDGEMENT
    sys.exit(code)
