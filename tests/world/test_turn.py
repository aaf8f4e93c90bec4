"""Whoever waits for ranks is asked again and again whether that should go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.world import GLOO, LocalLauncher, Options, Pool, PoolError
from tests.waiting import wait_until
from tests.world.conftest import job, opened

LIMIT = 0.4


class Enough(BaseException):
    """As a deadline is: no Exception."""


def test_what_the_turn_raises_ends_a_wait_for_ranks_and_for_an_import() -> None:
    asked: list[bool] = []

    def turn() -> None:
        if asked:
            raise Enough

    with Pool(Options(turn=turn, cpu_seconds=600.0)) as pool:
        template = opened(pool, "Skipper")
        pending = template.submit([job("loop", 2)])
        asked.append(True)
        with pytest.raises(Enough):
            pending.wait()
        with pytest.raises(Enough):
            opened(pool, "Skipper")
        asked.clear()
        assert len(opened(pool, "Skipper").run([job("nothing", 2)])) == 1


def test_an_interrupted_import_costs_earlier_templates_no_silence() -> None:
    """It ends the launcher: the next one must not be asked how templates of the first ended."""
    asked: list[bool] = []

    def turn() -> None:
        if asked:
            raise Enough

    launcher = LocalLauncher()
    with Pool(launcher=launcher) as pool, Pool(Options(turn=turn), launcher=launcher) as other:
        template = opened(pool, "Skipper")
        assert len(template.run([job("nothing", 2)])) == 1
        asked.append(True)
        with pytest.raises(Enough):
            opened(other, "Skipper")
        # Asked about a template that is not its own, it would say nothing until it is given up.
        second = opened(pool, "Skipper")
        assert len(template.run([job("nothing", 2)])) == 1
        assert len(second.run([job("nothing", 2)])) == 1
        assert not launcher._fork_server.gone
    launcher.close()


def test_ranks_are_ready_once_torch_is_imported() -> None:
    launcher = LocalLauncher()
    with Pool(launcher=launcher) as pool:
        assert not pool.ready
        launcher.require(GLOO)
        assert pool.ready
    launcher.close()


def test_a_launcher_that_is_gone_is_not_waited_for_nor_started_by_asking() -> None:
    launcher = LocalLauncher()
    with Pool(launcher=launcher) as pool:
        gone = launcher._fork_server
        gone.close()
        assert pool.ready
        assert launcher._fork_server is gone
        launcher.require(GLOO)
        assert not launcher._fork_server.gone
    launcher.close()


def test_why_a_launcher_did_not_start_is_told_by_itself_however_late_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('broken')\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        launcher = LocalLauncher()
    first = launcher._fork_server
    assert wait_until(lambda: first._process.poll() is not None)
    assert launcher.ready
    with pytest.raises(PoolError, match="ranks need torch, which fails to import"):
        launcher.require(GLOO)
    assert launcher._fork_server is first
    launcher.require(GLOO)
    assert launcher._fork_server is not first, "the next request had more luck"
    launcher.close()


def test_seconds_of_loading_are_told_apart() -> None:
    """``Prepares`` uses so much processor time before the first job of a rank, and only there."""
    with Pool(Options(cpu_seconds=LIMIT, silence=60.0)) as pool:
        template = opened(pool, "Prepares", {"seconds": 2 * LIMIT, "fails": False})
        template.run([job("nothing", 1)])
        first = template.loading
        assert first >= 2 * LIMIT
        template.run([job("nothing", 1)] * 100)
        assert template.loading == first
