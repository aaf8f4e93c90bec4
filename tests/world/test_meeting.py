"""Processes that were launched together: which place each has, and who is let in by the driver."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aggverify.errors import InputError
from aggverify.world import PoolError, linux, meeting, processes
from aggverify.world import door as doors
from aggverify.world.door import Door
from aggverify.world.far import sent
from aggverify.world.hosts import Far
from aggverify.world.meeting import Met, Seat

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
    assert meeting.seat(TORCHRUN) == Seat(1, 4, "node0", 29500, False, 1)
    assert meeting.seat(SRUN) == Seat(2, 4, "node0", 29500, True, 0)


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
    assert meeting.seat(environment) is None


@pytest.mark.parametrize("lacking", ["MASTER_ADDR", "MASTER_PORT"])
def test_a_place_without_an_address(lacking: str) -> None:
    with pytest.raises(InputError, match="srun has started 4 of this, which need MASTER_ADDR"):
        meeting.seat({name: value for name, value in SRUN.items() if name != lacking})


def test_addresses_and_interfaces() -> None:
    assert meeting.address_of("lo") == meeting.LOOPBACK
    assert meeting.interface_of(meeting.LOOPBACK) == "lo"
    assert meeting.address_of("no-such") is None
    assert meeting.machine() == meeting.machine() != ""


class _Store(dict[str, bytes]):
    """As torch's: what is put as text is got as bytes."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]


def test_on_one_machine_they_meet_by_loopback() -> None:
    store = _Store()
    store.set("aggverify/0/machine/1", meeting.machine())
    mine, listening = meeting.meet(Seat(0, 2, "node0", 1), store)
    assert listening is not None
    with listening:
        assert listening.getsockname() == (meeting.LOOPBACK, mine.port)
    assert meeting.meet(Seat(1, 2, "node0", 1), store) == (mine, None)
    assert mine.machines == 1 and len(set(mine.tickets)) == 2


def test_on_several_machines_an_address_is_needed_that_others_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    store = _Store()
    store.set("aggverify/0/machine/1", "another")
    for number in (0, 1):  # both are told, the first one says it
        with pytest.raises(InputError, match=r"127.0.0.1 \(MASTER_ADDR\) is no address by which"):
            meeting.meet(Seat(number, 2, "127.0.0.1", 1), store)
    store.set("aggverify/0/machine/1", "another")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # said by a person, who knows
    mine, listening = meeting.meet(Seat(0, 2, "127.0.0.1", 1), store)
    assert listening is not None and mine.machines == 2
    listening.close()


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door(socket.create_server((meeting.LOOPBACK, 0)))
    yield made
    made.close()


def _met(door: Door) -> Met:
    return Met(*door.listening.getsockname(), (), 1)


def _shown_out(connection: socket.socket) -> bool:
    with connection:
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


def test_who_has_a_ticket_is_let_in_whoever_else_is_at_the_door(door: Door) -> None:
    met, tickets = _met(door), [door.ticket(), door.ticket()]
    silent = socket.create_connection((met.address, met.port))
    wrong = meeting.dial(met, "0" * 64)
    short = socket.create_connection((met.address, met.port))
    short.sendall(tickets[0][:10].encode())
    short.shutdown(socket.SHUT_WR)
    ours = [meeting.dial(met, ticket) for ticket in reversed(tickets)]
    theirs = door.take(tickets, lambda: None)
    for n, connection in enumerate(reversed(ours)):
        with connection:
            connection.sendall(bytes([n]))
    assert [connection.recv(2) for connection in theirs] == [b"\0", b"\1"]
    for connection in theirs:
        connection.close()
    # Each is good for one connection.
    again, last = meeting.dial(met, tickets[0]), door.ticket()
    known = meeting.dial(met, last)
    door.take([last], lambda: None)[0].close()
    known.close()
    assert _shown_out(wrong) and _shown_out(short) and _shown_out(again)
    door.close()
    assert _shown_out(silent)


def test_who_says_nothing_makes_room_for_others(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "_MOST_STRANGERS", 2)
    met, ticket = _met(door), door.ticket()
    silent = [socket.create_connection((met.address, met.port)) for _ in range(4)]
    with meeting.dial(met, ticket):
        door.take([ticket], lambda: None)[0].close()
    assert _shown_out(silent[0])
    for connection in silent[1:]:
        connection.close()


def test_who_does_not_come_is_not_waited_for_for_ever(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "PATIENCE", 0.0)
    with pytest.raises(PoolError, match="1 of 1 connections have not come in 0 s"):
        door.take([door.ticket()], lambda: None)


class _Hosts:
    """Answers for every host what this machine says of a process of its own."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def ask(self, requests: dict[int, dict[str, object]]) -> dict[int, dict[str, object]]:
        self.asked += requests
        return {n: self._answer(request) for n, request in requests.items()}

    def _answer(self, request: dict[str, object]) -> dict[str, object]:
        match request["op"]:
            case "child":
                return {"child": request["number"] if request["number"] != 1 else linux.NOBODY}
            case "slept":
                return {"slept": processes.slept(request["pid"])}  # type: ignore[arg-type]
        seen = processes.glance(request["pids"])  # type: ignore[arg-type]
        return sent(replace(seen, load=1.5))


def test_processes_of_several_machines_are_told_apart() -> None:
    hosts = _Hosts()
    far = Far(hosts, 1)  # type: ignore[arg-type]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pids = [far.child(rank, process.pid) for rank in (0, 2)]
        assert pids[0] == process.pid and len(set(pids)) == 2
        assert far.child(1, 1) == linux.NOBODY
        seen = far.glance(pids)
        assert [thread.number for thread in seen.threads] == pids
        assert list(seen.cpu) == pids == list(seen.roots) and seen.load == 1.5 and seen.glance
        hosts.asked.clear()
        assert far.slept(pids[1]) is not None and hosts.asked == [2]
        process.kill()
    assert far.glance(pids).threads == ()
    assert far.slept(os.getpid()) is not None
