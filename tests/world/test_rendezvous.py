"""Processes that were launched together: which place each has, and how the driver sees ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from aggverify.errors import InputError
from aggverify.world import linux, rendezvous, serving
from aggverify.world.process_inspector import LocalInspector
from aggverify.world.remote_ranks import RemoteInspector, RemoteLink, RemotePage
from aggverify.world.rendezvous import RankInfo
from aggverify.world.wire import encode

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}
SRUN = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}


def test_a_place_by_torchrun_and_by_srun() -> None:
    assert rendezvous.rank_info(TORCHRUN) == RankInfo(1, 4, "node0", 29500, False, 1)
    assert rendezvous.rank_info(SRUN) == RankInfo(2, 4, "node0", 29500, True, 0)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "2"},  # exported for something else: nobody has launched this
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},  # a batch script, not a task of srun
        {**SRUN, "SLURM_STEP_NUM_TASKS": "1"},
        {**SRUN, "SLURM_PROCID": "4"},
        {**TORCHRUN, "RANK": "x"},
    ],
)
def test_no_place(environment: dict[str, str]) -> None:
    assert rendezvous.rank_info(environment) is None


@pytest.mark.parametrize("lacking", ["MASTER_ADDR", "MASTER_PORT"])
def test_a_place_without_an_address(lacking: str) -> None:
    with pytest.raises(InputError, match="srun has started 4 of this, which need MASTER_ADDR"):
        rendezvous.rank_info({name: value for name, value in SRUN.items() if name != lacking})


def test_the_interface_is_the_one_said_or_the_one_that_leads_to_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert rendezvous.address_of("lo") == "127.0.0.1"
    assert rendezvous.address_of("no-such") is None
    here = RankInfo(0, 2, "127.0.0.1", 1)
    assert rendezvous.interface(here) == "", "others do not reach this machine there"
    assert "127.0.0.1 (MASTER_ADDR) is no address by which other" in rendezvous.unreachable(here)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # said by a person, who knows
    assert rendezvous.interface(here) == "lo"
    assert rendezvous.machine() == rendezvous.machine() != ""


class _Hosts:
    """Answers for every host what this machine says of a process of its own."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.told: list[tuple[int, dict[str, object], bytes]] = []

    def send(self, host: int, request: dict[str, object], blob: bytes = b"") -> None:
        self.told.append((host, request, blob))

    def ask(self, requests: dict[int, dict[str, object]]) -> dict[int, dict[str, object]]:
        self.asked += requests
        return {n: self._answer(request) for n, request in requests.items()}

    def _answer(self, request: dict[str, object]) -> dict[str, object]:
        if request["op"] == "drain":
            return {}
        what, given = str(request["what"]), dict(request["with"])  # type: ignore[call-overload]
        return json.loads(
            json.dumps({"seen": serving.seen(LocalInspector(os.getpid()), what, given)})
        )  # type: ignore[no-any-return]


def test_processes_of_several_machines_are_told_apart() -> None:
    hosts = _Hosts()
    far = RemoteInspector(hosts, 1, range(3))  # type: ignore[arg-type]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pids = [far.child(rank, process.pid) for rank in (0, 2)]
        assert pids[0] == process.pid and len(set(pids)) == 2
        assert far.child(1, 1) == linux.NO_PROCESS
        seen = far.glance(pids)
        assert [thread.number for thread in seen.threads] == pids
        assert list(seen.cpu) == pids == list(seen.roots) and seen.glance
        whole = far.look(pids, {b"python"})
        assert {thread.number for thread in whole.threads} >= set(pids) and not whole.glance
        assert all(isinstance(thread.state, bytes) for thread in whole.threads)
        hosts.asked.clear()
        assert far.slept(pids[1]) is not None and hosts.asked == [2]
        process.kill()
    assert far.glance(pids).threads == ()


def test_what_a_host_has_read_of_its_rank_is_checked_again() -> None:
    hosts = _Hosts()
    link = RemoteLink(RemotePage(hosts, 1, 7, 2))  # type: ignore[arg-type]
    link.put({"said": None}, encode({"ready": 12}))
    link.put({"printed": 100_000}, b"the end of it")
    assert link.read().complete and link.replies.pop() == ({"ready": 12}, b"")
    assert link.output.drain() == "the end of it" and link.output.size == 100_000
    link.out += b"job"
    link.write()
    [(host, request, blob)] = hosts.told
    assert (host, request["world"], request["asked"], blob) == (2, 7, 1, b"job") and not link.out
    link.put({"said": None}, encode({"ready": 12}))  # once more, unasked
    link.read()
    assert link.ended and "answers what it was not asked" in str(link.garbage)
    link.close()
    link.put({"ended": None}, b"")  # by a thread that does not know yet


def test_the_end_of_a_rank_comes_after_what_it_has_said() -> None:
    link = RemoteLink(RemotePage(_Hosts(), 1, 1, 0))  # type: ignore[arg-type]
    link.put({"said": None}, encode({"ready": 12}))
    link.put({"ended": "sent what is no answer: x"}, b"")
    assert link.read().complete and link.ended
    assert link.garbage == "sent what is no answer: x"
    assert link.replies.pop() == ({"ready": 12}, b"")
    link.close()
