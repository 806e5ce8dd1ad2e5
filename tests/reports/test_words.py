"""Both languages say everything, and the templates say nothing by themselves."""

import re
from pathlib import Path
from string import Formatter

import pytest

import reports
from reports.figures import FIGURES
from reports.words import LANGUAGES, Text, words
from results.errors import ResultsError

FOLDER = Path(reports.__file__).parent
PROGRAM = "tokenroof"


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_both_languages_have_the_same_keys_in_the_same_order_with_the_same_places() -> None:
    english, *others = (words(lang) for lang in LANGUAGES)
    for other in others:
        assert list(other) == list(english)
        assert {key: _fields(text) for key, text in other.items()} == {key: _fields(t) for key, t in english.items()}
    assert all(text.strip() for lang in LANGUAGES for text in words(lang).values())


def test_a_count_and_its_noun_agree() -> None:
    text = Text("{all:repetition was|repetitions were} made, {n:more row|more rows}; {n} in {place}")
    assert text.format(all="1,024", n=1, place="a") == "1,024 repetitions were made, 1 more row; 1 in a"
    assert text.format(all=1, n=0, place="b") == "1 repetition was made, 0 more rows; 0 in b"


def test_no_number_is_followed_by_a_noun_that_cannot_agree() -> None:
    """The nouns are those of all places that do agree."""
    english = words("en")
    many = {spec.split("|")[1] for text in english.values() for _, _, spec, _ in Formatter().parse(text) if spec}
    nouns = {word for text in many for word in text.split() if word.endswith("s")}
    assert {"rows", "cases", "tokens", "panels"} <= nouns
    stiff = re.compile(rf"\{{\w+\}}(?: \w+)? (?:{'|'.join(sorted(nouns))})\b(?! a second|/s)")
    assert {key: stiff.findall(text) for key, text in english.items() if stiff.search(text)} == {}


def test_japanese_is_japanese() -> None:
    japanese = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
    bare = {key: re.sub(r"\{.*?\}", "", text) for key, text in words("ja").items() if not japanese.search(text)}
    assert {key for key, text in bare.items() if re.search("[a-z]{3}", text)} == set()


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ResultsError, match="'fr', only for en, ja"):
        words("fr")


@pytest.mark.parametrize("template", sorted((FOLDER / "templates").glob("*.j2")), ids=lambda path: path.name)
def test_templates_hold_no_text_of_their_own(template: Path) -> None:
    text = re.sub(r"\{#.*?#\}|\{\{.*?\}\}|\{%.*?%\}", "", template.read_text(encoding="utf-8"), flags=re.DOTALL)
    spoken = re.findall(r'(?:alt|title|placeholder|aria-label)="([^"]*)"', text)
    shown = re.sub(r"<[^>]*>", " ", text)
    assert not re.search(r"[^\W\d_]", " ".join([shown, *spoken]).replace(PROGRAM, ""))


def test_every_key_that_is_used_exists_and_every_key_is_used() -> None:
    sources = [*FOLDER.rglob("*.py"), *FOLDER.rglob("*.j2")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = set(re.findall(r"""words\[f?["']([a-z_]+(?:\.[a-z_]+)+)["']\]""", code))
    assert named
    assert named <= set(words("en"))
    assert {f"page.caption.{name}" for name in FIGURES} <= set(words("en"))
    last_parts = {
        key: key.rsplit(".", 1)[1]
        for key in words("en")
        if not key.startswith(("method.", "figures.", "page.caption."))
    }
    assert {key for key, last in last_parts.items() if not re.search(rf"\b{last}\b", code)} == set()
