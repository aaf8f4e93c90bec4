"""What ranks print: the beginning and the end are kept, however much it is."""

from __future__ import annotations

import os

from aggverify.world.link import Printed, output_pipe


def test_little_is_kept_whole() -> None:
    printed = Printed()
    assert not printed and printed.lines == []
    for part in (b"one\ntw", b"o\n"):
        printed.add(part)
    assert printed and printed.lines == ["one", "two"]
    printed.clear()
    assert not printed and printed.lines == []


def test_of_much_the_beginning_and_the_end_are_kept() -> None:
    printed = Printed()
    for n in range(100_000):
        printed.add(b"%09d\n" % n)
    dropped = 1_000_000 - 2 * 8_000
    assert (len(printed.head), len(printed.tail), printed.dropped) == (8_000, 8_000, dropped)
    lines = printed.lines
    assert (lines[0], lines[799], lines[801], lines[-1]) == (
        *("000000000", "000000799"),
        *("000099200", "000099999"),
    )
    assert lines[800] == "… 984,000 bytes dropped …"


def test_what_nobody_has_read_yet_is_taken() -> None:
    output, write = output_pipe()
    output.copy_to = Printed()
    output.read_rest()
    assert not output.copy_to
    os.write(write, b"late\n")
    output.read_rest()
    assert output.copy_to.lines == ["late"]
    os.close(write)
    output.read_rest()  # its end
    os.close(output.fd)
