"""The errors a user can cause and mend."""

from results.errors import TokenroofError

__all__ = ["TokenroofError", "UserError"]


class UserError(TokenroofError):
    """A request that cannot be run as it stands: exit code 2, one line, what to do instead."""
