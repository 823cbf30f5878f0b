"""Cuts the TCP connections of a child process from outside, as a network does: no proxy, no privilege. Linux 5.6 or later.

The socket is borrowed (pidfd_getfd) and shut down; the process that owns it finds its connection broken.
"""

import ctypes
import os
import socket

PIDFD_OPEN, PIDFD_GETFD = 434, 438
LIBC = ctypes.CDLL(None, use_errno=True)


def borrow(pid, number):
    """A copy of a process's file descriptor, or None if it is gone or may not be had."""
    handle = LIBC.syscall(PIDFD_OPEN, pid, 0)
    if handle < 0:
        return None
    try:
        copy = LIBC.syscall(PIDFD_GETFD, handle, number, 0)
    finally:
        os.close(handle)
    return None if copy < 0 else copy


def connections(pid):
    """Cuts every connection that the process has made to somebody; gives how many. It goes on listening."""
    cut = 0
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
                continue
        except OSError:
            continue
        copy = borrow(pid, int(number))
        if copy is None:
            continue
        with socket.socket(fileno=copy) as end:
            if end.family not in (socket.AF_INET, socket.AF_INET6) or end.type != socket.SOCK_STREAM:
                continue
            try:
                end.getpeername()
                end.shutdown(socket.SHUT_RDWR)
                cut += 1
            except OSError:
                pass  # it listens, or is not connected yet
    return cut


def possible():
    """Tried on a socket of our own."""
    with socket.socket() as one:
        copy = borrow(os.getpid(), one.fileno())
        if copy is None:
            return False
        os.close(copy)
        return True
