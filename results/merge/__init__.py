"""Rows of several files as one: exact duplicates dropped, false friends marked, probes that meet compared."""

from results.merge.merge import Merged, merge

__all__ = ["Merged", "merge"]
