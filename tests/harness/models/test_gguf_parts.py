"""Split GGUF models: made by the gguf package's own writer, loaded by llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import llama_cpp as backend
from backends.base import LoadRequest
from backends.llama_cpp.quantise import quantise
from harness.errors import UserError
from harness.models import artifacts, source
from harness.models.artifact_weights import weights_of
from harness.models.gguf_file import read_gguf
from harness.models.gguf_parts import all_parts, model_name, models_in, only_model_in
from harness.options import Options
from harness.plan import make_plan
from harness.quantise.artifact import quantised

_TENSORS_A_PART = 8  # of 21


def _split(whole: Path, name: str, directory: Path) -> list[Path]:
    """Every key and tensor of a file, in parts."""
    reader = gguf.GGUFReader(whole)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(directory / f"{name}.gguf", architecture, split_max_tensors=_TENSORS_A_PART)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(directory.glob(f"{name}-*.gguf"))


@pytest.fixture(scope="session")
def parts(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return _split(tiny_gguf, "tiny", tmp_path_factory.mktemp("split"))


@pytest.fixture
def own_parts(tiny_gguf: Path, tmp_path: Path) -> list[Path]:
    return _split(tiny_gguf, "tiny", tmp_path)


def _answers(path: Path) -> tuple[Any, int, int]:
    session = backend.load(LoadRequest(path, None, device="cpu"))
    session.allocate(64, 1)
    logits = session.logits(np.arange(3, 19, dtype=np.int32)[None])
    facts = session.facts()
    session.close()
    return logits, facts.weight_bytes, facts.n_params


def test_any_part_names_the_whole_model_and_llama_cpp_loads_it(parts: list[Path], tiny_gguf: Path) -> None:
    assert [path.name for path in parts] == [f"tiny-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    logits, weight_bytes, n_params = _answers(tiny_gguf)
    for part in parts:
        model = source.resolve(str(part))
        assert (model.name, model.path) == ("tiny", parts[0])
        weights = weights_of(model, None)
        assert (weights.n_bytes, weights.n_params) == (weight_bytes, n_params)
        artifact = artifacts.prepare(model, "gguf", None)
        assert artifact.weights_bytes == weight_bytes
        np.testing.assert_array_equal(_answers(artifact.path)[0], logits)


def test_llama_cpps_quantiser_finds_the_other_parts(
    parts: list[Path], tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path))
    options = Options(models=str(parts[1]), backends="llama.cpp", weights="q8_0", n_prompt=8, n_gen=2, device="cpu")
    (work,) = make_plan(options).works
    copy, expected = gguf.GGUFReader(quantised(work, 60, lambda *_: None).path), tmp_path / "q8_0.gguf"
    quantise(tiny_gguf, expected, "q8_0", n_threads=1)
    of_whole = {tensor.name: tensor for tensor in gguf.GGUFReader(expected).tensors}
    assert {tensor.name for tensor in copy.tensors} == of_whole.keys()
    for tensor in copy.tensors:
        assert tensor.tensor_type == of_whole[tensor.name].tensor_type
        np.testing.assert_array_equal(tensor.data, of_whole[tensor.name].data)
    assert not [key for key in copy.fields if key.startswith("split.")], "it is one file"


def test_the_header_is_that_of_the_whole_model(parts: list[Path], tiny_gguf: Path) -> None:
    whole, split = read_gguf(tiny_gguf), read_gguf(parts[1])
    assert {(each.name, each.shape, each.n_bytes) for each in split.tensors} == {
        (each.name, each.shape, each.n_bytes) for each in whole.tensors
    }
    assert {each.path for each in split.tensors} == set(parts)
    assert whole.metadata.items() <= split.metadata.items()


@pytest.mark.parametrize(("gone", "named"), [((0,), 1), ((2,), 0), ((1, 2), 0)])
def test_missing_parts_are_named(own_parts: list[Path], gone: tuple[int, ...], named: int) -> None:
    for index in gone:
        own_parts[index].unlink()
    names = ", ".join(own_parts[index].name for index in gone)
    with pytest.raises(UserError, match=f"has 3 parts, and beside it there is no {names}; copy them too"):
        source.resolve(str(own_parts[named]))
    with pytest.raises(UserError, match=f"beside it there is no {names}"):
        source.resolve(str(own_parts[named].parent))


def test_a_part_of_another_name_is_told(own_parts: list[Path]) -> None:
    renamed = own_parts[0].rename(own_parts[0].with_name("model.gguf"))
    with pytest.raises(UserError, match=r"one of 3 parts .* names that end in -00001-of-00003\.gguf"):
        source.resolve(str(renamed))


def test_parts_of_different_models_are_told(own_parts: list[Path]) -> None:
    own_parts[1].write_bytes(own_parts[2].read_bytes())
    with pytest.raises(UserError, match=r"hold 13 different tensors, and the first promises 21: .* not of one model"):
        source.resolve(str(own_parts[0]))


def test_a_directory_stands_for_its_only_model(own_parts: list[Path], tiny_gguf: Path) -> None:
    directory = own_parts[0].parent
    (directory / "mmproj-tiny-f16.gguf").write_bytes(b"GGUF")  # a projector is not the model
    assert source.resolve(str(directory)).path == own_parts[0]
    (directory / "Q8_0").mkdir()
    (directory / "Q8_0" / "other.gguf").write_bytes(tiny_gguf.read_bytes())
    assert [path.name for path in models_in(directory)] == ["other.gguf", own_parts[0].name]
    with pytest.raises(UserError, match=r"holds 2 models: Q8_0/other\.gguf, tiny-00001-of-00003\.gguf; name one"):
        source.resolve(str(directory))
    assert only_model_in(directory / "Q8_0", "it") == directory / "Q8_0" / "other.gguf"


@given(stem=st.text("ab-0123of.", min_size=1), n_parts=st.integers(2, 500), data=st.data())
def test_the_names_of_parts(stem: str, n_parts: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, n_parts))
    path = Path("/nowhere") / f"{stem}-{number:05d}-of-{n_parts:05d}.gguf"
    assert model_name(path) == stem
    with pytest.raises(UserError, match=f"has {n_parts} parts"):
        all_parts(path, n_parts)
    with pytest.raises(UserError, match="its name does not say which"):
        all_parts(path, n_parts + 1)
