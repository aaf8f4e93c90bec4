"""Which system calls a sandbox refuses, as libseccomp's program for the kernel.

What torch, gloo and a reducer need is allowed, of which there is no list; refused is what changes
the machine, reaches other processes, or has been a way out of sandboxes like this one.
"""

from __future__ import annotations

import errno
import os

from aggverify.world.faults import PoolError

REFUSED = (
    "mount", "umount2", "mount_setattr", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount",
    "fspick", "pivot_root", "chroot", "unshare", "setns", "ptrace", "process_vm_readv",
    "process_vm_writev", "pidfd_getfd", "kcmp", "keyctl", "add_key", "request_key", "bpf",
    "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
    "swapon", "swapoff", "acct", "quotactl", "syslog", "settimeofday", "clock_settime", "adjtimex",
    "clock_adjtime", "name_to_handle_at", "open_by_handle_at", "vhangup",
)  # fmt: skip
_NEW_USER = 0x10000000
"""CLONE_NEWUSER: no process gets rights in a namespace that it has made."""
_FAMILIES = (17, 38, 40)
"""AF_PACKET, AF_ALG, AF_VSOCK: sockets that no network namespace holds, or that nothing needs."""


def program() -> int:
    """Make an open file in memory that holds the program; raises PoolError where that fails."""
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError, OSError) as error:  # the library below it may be missing
        raise PoolError(
            f"--sandbox needs libseccomp and Python's way to it: pip install 'aggverify[sandbox]' "
            f"({error})"
        ) from None
    refuse = seccomp.ERRNO(errno.EPERM)
    made = seccomp.SyscallFilter(defaction=seccomp.ALLOW)
    for name in REFUSED:
        made.add_rule(refuse, name)
    made.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _NEW_USER, _NEW_USER))
    # Its flags lie in memory, where a filter cannot look: libraries fall back on the older call.
    made.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    for family in _FAMILIES:
        made.add_rule(refuse, "socket", seccomp.Arg(0, seccomp.EQ, family))
    page = os.memfd_create("system calls")
    with open(page, "wb", closefd=False) as file:
        made.export_bpf(file)
    os.lseek(page, 0, os.SEEK_SET)
    return page
