"""One suite that any backend must pass: the clauses of `backends.base`, each checked on a real session.

It needs numpy and nothing else, so that it also runs on a machine where only an engine is installed. Give it
a model with a small vocabulary: every position's logits are brought to the host.

Numbers are compared with one `tolerance`. Two sets of logits agree when, at every position, the L2 norm of
their difference is at most `tolerance` times the norm of the expected ones. An id is an argmax when its logit
lies at most `tolerance` times the largest magnitude at that position below the maximum, because two kernels
of one engine may break a tie differently.
"""

from backends.conformance.suite import CheckResult, assert_conforms, checks, run

__all__ = ["CheckResult", "assert_conforms", "checks", "run"]
