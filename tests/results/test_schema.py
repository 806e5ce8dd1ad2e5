import re
from pathlib import Path

from results.schema import COLUMNS, NAMES

DOCUMENT = Path(__file__).parents[2] / "docs" / "columns.md"


def test_the_documentation_has_every_column_as_declared() -> None:
    documented = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (yes)? ?\| (.+) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE
    )
    declared = [(column.name, column.kind, "yes" if column.required else "", column.meaning) for column in COLUMNS]
    assert documented == declared


def test_names_are_unique_end_with_row_id_and_say_their_unit() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert NAMES[0] == "schema_version"
    assert NAMES[-1] == "row_id", "a torn line shows by its last cell"
    for column in COLUMNS:
        if column.kind == "float" and column.name != "probe_nll":
            assert column.name.endswith(("_s", "_tok_s")), f"{column.name} does not say its unit"
