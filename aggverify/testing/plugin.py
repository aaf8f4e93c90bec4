"""The pytest plugin: options, ranks for the session, how outcomes are reported, a summary.

Loaded into every pytest that has aggverify installed, so it imports nothing of the rest until a
test asks for a reducer.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aggverify.testing.result import Leavings, Result
    from aggverify.testing.session_state import SessionState

OPTIONS = (
    ("profile", "quick, ci or thorough"),
    ("seed", "seed of the search"),
    ("max-time", "seconds for each run of a reducer"),
    ("report", "also write reports, comma-separated: json, junit, md, html, sarif, pytest, text"),
)
_LEAVINGS: pytest.StashKey[Leavings] = pytest.StashKey()
"""In a test's stash: what it leaves for the summary."""
_PROCESS: pytest.StashKey[int] = pytest.StashKey()
"""In the config's stash: the process that the session began in."""
SHARED = "aggverify_shared"
"""Key of a worker's input: the path of a folder that all workers share."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("aggverify", "verification of loss reducers")
    for name, what in OPTIONS:
        group.addoption(f"--aggverify-{name}", help=what)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keep pytest from rewriting the assertions of every module of ours.

    It does so for packages that have a plugin, which takes a second in every process without a
    cache.
    """
    hook = early_config.pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("aggverify")


def pytest_configure(config: pytest.Config) -> None:
    # pytest-xdist's, which is not there in every suite with --strict-markers
    config.addinivalue_line("markers", "xdist_group(name): stays together, --dist loadgroup")
    config.stash[_PROCESS] = os.getpid()
    if (wanted := config.getoption("--aggverify-report")) is not None:
        from aggverify.errors import InputError
        from aggverify.report import formats

        try:
            formats.chosen(wanted.split(","))
        except InputError as error:
            raise pytest.UsageError(f"--aggverify-report: {error}") from None
    if not hasattr(config, "workerinput"):  # workers' reports all come to their controller
        config.pluginmanager.register(Controller(config), "aggverify-controller")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make an expected failure that is none of the test's an error of collection."""
    if "aggverify_check" not in metafunc.fixturenames:
        return
    from aggverify.errors import InputError
    from aggverify.testing.expected_failures import all_found
    from aggverify.testing.settings import report_dir

    marks = metafunc.definition.iter_markers("parametrize")
    mine = (mark.args[1] for mark in marks if mark.args[:1] == ("aggverify_check",))
    cells = [parameters.values[0] for each in mine for parameters in each]
    if not any(cell.xfail or cell.baseline for cell in cells):
        return
    try:
        all_found(cells, metafunc.config.rootpath, report_dir(metafunc.config))
    except InputError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.name}: {error}") from None


@pytest.fixture(scope="session")
def aggverify_session(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> Iterator[SessionState]:
    """Ranks for this test process; they start with the first test and end with the session."""
    from aggverify.testing.session_state import SessionState
    from aggverify.testing.settings import report_dir, usual

    if pytestconfig.stash[_PROCESS] != os.getpid() or getattr(pytestconfig.option, "forked", False):
        pytest.fail(
            "aggverify's ranks belong to one process: run its tests without --forked", pytrace=False
        )
    shared = getattr(pytestconfig, "workerinput", {}).get(SHARED)
    folder = Path(shared) if shared is not None and Path(shared).is_dir() else None
    items = (item for item in request.session.items if not item.get_closest_marker("skip"))
    chosen = (getattr(item, "callspec", None) for item in items)
    cells = [c.params["aggverify_check"] for c in chosen if c and "aggverify_check" in c.params]
    state = SessionState(
        pytestconfig.rootpath, report_dir(pytestconfig), usual(pytestconfig), folder, cells
    )
    yield state
    state.close()


@pytest.fixture
def aggverify_check(request: pytest.FixtureRequest, aggverify_session: SessionState) -> Result:
    """Run the check of this test; what could not be judged is an error, not a failure."""
    from aggverify.testing import expected_failures
    from aggverify.testing.result import Leavings, result
    from aggverify.testing.settings import report_dir

    left = request.node.stash[_LEAVINGS] = Leavings()
    config, cell = request.config, request.param
    foreseen = expected_failures.of(cell, config.rootpath, report_dir(config))
    found = result(aggverify_session, cell, foreseen, left, request.node.nodeid)
    for finding in found.verdict.findings:
        request.node.user_properties += [
            ("aggverify_code", finding.code),
            ("aggverify_case", finding.id),
            *([("aggverify_diagnosis", finding.diagnosis)] if finding.diagnosis else []),
        ]
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what a test leaves into its report, which travels from worker to controller."""
    report = yield
    left = item.stash.get(_LEAVINGS, None)
    if left is not None and report.when == "setup":
        report.aggverify = [left.verdicts, left.findings, left.error]  # type: ignore[attr-defined]
    crash = getattr(report.longrepr, "reprcrash", None)
    if left is not None and crash is not None:
        # pytest's own short summary, which it does not cut on CI, and JUnit's attribute
        crash.message = crash.message.partition("\n")[0]
    return report


def _folder(config: Any) -> Path:
    """Make a folder below pytest's base folder, which pytest tidies whatever ends the session."""
    made: Path = config._tmp_path_factory.mktemp("aggverify")
    return made


class Controller:
    """Takes what every test leaves and prints it as one summary; gives workers a folder."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._shared: str | None = None
        self._left: list[tuple[str, list[Any], list[tuple[str, bool]], str | None]] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Prepare a worker of pytest-xdist's that is about to start."""
        self._shared = self._shared or str(_folder(node.config))
        node.workerinput[SHARED] = self._shared

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what came with the report of a test."""
        left = getattr(report, "aggverify", None)
        if left is not None:
            self._left.append((report.nodeid, *left))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Every cause once with the tests it broke, what was done, and the reports."""
        if not self._left:
            return
        from aggverify.testing.summary import summary_lines

        terminalreporter.section("aggverify")
        for line in summary_lines(self._config, self._left):
            terminalreporter.write_line(line)
