"""The pytest plugin: options, ranks for the session, how outcomes are reported, a summary.

Loaded into every pytest that has aggverify beside it, so it imports nothing of the rest until a
test asks for a reducer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aggverify.report.model import Check, Verdict
    from aggverify.testing.bench import Bench
    from aggverify.testing.cells import Cell

OPTIONS = (
    ("profile", "quick, ci or thorough"),
    ("seed", "seed of the search"),
    ("max-time", "seconds for each check"),
    ("report", "also write json, junit, md, html or text reports (comma-separated)"),
)
_PLAIN: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""Of a test: the verdict of its check, as plain data that travels between workers."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check on one reducer."""

    verdict: Verdict

    @property
    def check(self) -> Check:
        """The check's line in the verdict."""
        [check] = self.verdict.checks
        return check

    @property
    def state(self) -> str:
        """``ok``, ``failed``, ``hazard``, ``refused``, ``not claimed``, ``left out``."""
        return str(self.check.state)

    def must_pass(self) -> None:
        """Fail the test that calls it with the finding, or skip it with the reason."""
        from aggverify.report import reading, text

        if self.verdict.fails:
            codes = ", ".join(dict.fromkeys(f"{f.code} {f.title}" for f in self.verdict.findings))
            block = "\n".join(text.findings(self.verdict))
            pytest.fail(f"{codes}\n{block}", pytrace=False)
        if self.state not in ("ok", "hazard"):
            pytest.skip(reading.state(self.check))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("aggverify", "verification of loss reducers")
    for name, what in OPTIONS:
        group.addoption(f"--aggverify-{name}", help=what)


def pytest_configure(config: pytest.Config) -> None:
    # pytest-xdist's, which is not there in every suite with --strict-markers
    config.addinivalue_line("markers", "xdist_group(name): stays together, --dist loadgroup")
    if not hasattr(config, "workerinput"):  # workers' reports all come to their controller
        config.pluginmanager.register(Summary(config), "aggverify-summary")


@pytest.fixture(scope="session")
def aggverify_bench(pytestconfig: pytest.Config) -> Iterator[Bench]:
    """Ranks for this test process; they start with the first test and end with the session."""
    from aggverify.testing.bench import Bench
    from aggverify.testing.settings import report_dir, usual

    if getattr(pytestconfig.option, "forked", False):
        pytest.fail(
            "aggverify's ranks belong to one process: run its tests without --forked", pytrace=False
        )
    bench = Bench(pytestconfig.rootpath, report_dir(pytestconfig), usual(pytestconfig))
    yield bench
    bench.close()


@pytest.fixture
def aggverify_check(request: pytest.FixtureRequest, aggverify_bench: Bench) -> Result:
    """The check of this test, done; what could not be judged is an error, not a failure."""
    from aggverify.errors import AggverifyError
    from aggverify.report import codec, reading
    from aggverify.report.document import written
    from aggverify.report.model import harmless

    cell: Cell = request.param
    try:
        document = written(aggverify_bench.run(cell))
    except AggverifyError as error:
        pytest.fail(f"{cell.target}: {error}", pytrace=False)
    request.node.stash[_PLAIN] = codec.plain(document)
    for found in document.findings:
        request.node.user_properties += [
            ("aggverify_code", found.code),
            ("aggverify_case", found.id),
            *([("aggverify_diagnosis", found.diagnosis)] if found.diagnosis else []),
        ]
    result = Result(harmless(document))
    if result.state == "not judged" and not document.fails:
        pytest.fail(f"{cell.target}: {reading.state(result.check)}", pytrace=False)
    if document.engine_in_question and result.state in ("ok", "hazard"):
        pytest.fail(f"{cell.target}: {reading.assumption(document)}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attributes of a report travel from worker to controller with it."""
    report = yield
    plain = item.stash.get(_PLAIN, None)
    if plain is not None and report.when == "setup":
        report.aggverify = plain  # type: ignore[attr-defined]
    return report


class Summary:
    """Takes every test's verdict, and tells what they say together."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: list[tuple[str, dict[str, Any]]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what came with the report of a test."""
        plain = getattr(report, "aggverify", None)
        if plain is not None:
            self._found.append((report.nodeid, plain))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Every cause once with the tests it broke, what was done, and the reports."""
        if not self._found:
            return
        from aggverify.testing.summary import told

        terminalreporter.section("aggverify")
        for line in told(self._config, self._found):
            terminalreporter.write_line(line)
