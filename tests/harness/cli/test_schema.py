"""`tokenroof schema`."""

import subprocess
import sys
from pathlib import Path

TOKENROOF = Path(sys.executable).with_name("tokenroof")
DOCUMENT = Path(__file__).parents[3] / "docs" / "columns.md"


def test_it_prints_the_page_of_the_documentation_and_loads_nothing_heavy() -> None:
    code = "import sys; from harness.cli.main import main; sys.argv = ['tokenroof', 'schema']; main()"
    command = [sys.executable, "-X", "importtime", "-c", code]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=60)
    assert result.stdout == DOCUMENT.read_text(encoding="utf-8")
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in result.stderr.splitlines() if "|" in line}
    assert not imported & {"pandas", "pyarrow", "numpy"}
