"""A command's help in groups, as plain text: typer has groups only in boxes of rich's, which start slowly."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from typer.core import TyperCommand


class Sections(TyperCommand):
    """Lists the options under their `rich_help_panel`, in the order in which they are declared."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write them."""
        for heading, options in groupby(self.get_params(ctx), key=_heading):
            with formatter.section(heading):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])


def _heading(option: Any) -> str:
    return getattr(option, "rich_help_panel", None) or "Help"
