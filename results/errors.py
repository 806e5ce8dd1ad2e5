"""The one family of exceptions that tokenroof raises for people to read."""


class TokenroofError(Exception):
    """What is wrong, where, and what to do, in one line. The command line prints it and exits with code 2."""


class ResultsError(TokenroofError):
    """A result file that cannot be read, written or understood."""
