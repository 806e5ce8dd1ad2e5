"""Host memory from the operating system's own counters; a sampling thread in the worker would disturb the timing."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


class HostPeak:
    """This process's peak resident memory, from where the system lets the count begin.

    Attributes:
        since: "case" where the counter could be set back, else "process" (macOS and Windows keep one for good).
    """

    def __init__(self) -> None:
        self.since = "case" if _reset_peak() else "process"

    def bytes(self) -> int:
        """Peak resident set size in bytes."""
        if sys.platform == "linux":
            line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
            return int(line.split()[1]) * 1024
        if sys.platform == "win32":
            return int(psutil.Process().memory_info().peak_wset)
        import resource  # noqa: PLC0415 POSIX only

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _reset_peak() -> bool:
    """Linux sets VmHWM back to the present size when 5 is written to clear_refs (proc(5))."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True
