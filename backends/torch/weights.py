"""What a model's weights are once they are in memory, whatever the files said: packed, expanded, quantised here.

Only the model itself can tell: transformers expands some quantised checkpoints while it loads them, or in the first
forward pass, and quantised modules keep scales and zero points beside their numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from backends.base import Held
from backends.torch.caches import tensors_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FORMATS = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}

# torchao 0.18: `Int8Tensor` as a weight casts itself. Seen on a CPU: 4 times as long as bf16, compiled half as long.
_EXPANDED_IN_EAGER = frozenset({"int8", "torchao-8bit"})


@dataclass(frozen=True)
class Weights:
    """The weights of a loaded model.

    Attributes:
        name: Of their format: "bf16", "int8", "gptq-4bit".
        plain: The format of those that are not quantised, which activations and keys and values have too.
        held: What each module holds.
        settings: What else can move a number, for `engine_settings`; of quantised ones the bytes by element type.
    """

    name: str
    plain: str
    held: tuple[Held, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def eager_expands(self) -> bool:
        """Whether an eager product first makes bf16 of all of them: torch.compile finds a product that does not."""
        return self.name in _EXPANDED_IN_EAGER

    @property
    def n_params(self) -> int:
        """Parameters, a tied one once, packed ones by their number."""
        return sum(module.n_params for module in self.held)

    @property
    def n_bytes(self) -> int:
        """Scales and zero points included, a tied tensor once."""
        return sum(module.n_bytes for module in self.held)


def plain_weights(model: Any, unquantised: Any = None) -> Weights:
    """Of a model whose checkpoint is not quantised; or was expanded, to what it would be `unquantised`.

    Scales that an expanded one has left are read no more, and do not count.
    """
    name = FORMATS[model.get_input_embeddings().weight.dtype]
    wanted = None if unquantised is None else unquantised.state_dict().keys()
    return Weights(name, name, _held(_tensors(model, wanted), unquantised or model))


def quantised_weights(model: Any, method: str, unquantised: Any) -> Weights:
    """Of a model whose checkpoint is quantised, or that torchao has quantised.

    Args:
        model: A transformers model, loaded.
        method: By what, such as "gptq" or "int8".
        unquantised: The same model without weights, which tells how many parameters packed modules hold.
    """
    plain = FORMATS[model.get_input_embeddings().weight.dtype]
    tensors = _tensors(model)
    held = _held(tensors, unquantised)
    types: Counter[str] = Counter()
    for tensor in (tensor for own in tensors.values() for tensor in own):
        types[str(tensor.dtype).removeprefix("torch.")] += tensor.nbytes
    settings: dict[str, Any] = {"weight_types": dict(types)}
    bits = _packed_bits(tensors, {module.name: module.n_params for module in held})
    if bits is None:
        return replace(plain_weights(model, unquantised), settings=settings | {"expanded_from": method})
    return Weights(method if method[-1].isdigit() else f"{method}-{bits}bit", plain, held, settings)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _held(tensors: Mapping[str, list[torch.Tensor]], unpacked: Any) -> tuple[Held, ...]:
    parameters: Counter[str] = Counter()
    for name, parameter in unpacked.named_parameters():
        parameters[_module(name)] += parameter.numel()
    return tuple(
        Held(f"{name}.weight", parameters[name], sum(tensor.nbytes for tensor in tensors.get(name, ())))
        for name in dict.fromkeys((*parameters, *tensors))
    )


def _tensors(model: Any, wanted: Collection[str] | None = None) -> dict[str, list[torch.Tensor]]:
    """By module, the tensors that its state consists of, each once; only the `wanted` ones, where they are named."""
    modules = {name for name, _ in model.named_modules()}
    found: dict[str, list[torch.Tensor]] = {}
    seen: set[int] = set()
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) in seen or (wanted is not None and name not in wanted):  # seen: a tied LM head
            continue
        seen.add(id(value))
        module = _module(name)
        while module not in modules:  # bitsandbytes names what belongs to a weight after it: "q_proj.weight.absmax"
            module = _module(module)
        found.setdefault(module, []).extend(tensors_in(value))
    return found


def _packed_bits(tensors: Mapping[str, list[torch.Tensor]], parameters: Mapping[str, int]) -> int | None:
    """Bits of a packed number, without its scales; None where all modules hold plain ones."""
    n_bytes = n_params = 0
    for name, own in tensors.items():
        packed = [tensor.nbytes for tensor in own if tensor.dtype not in FORMATS and tensor.dim() > 1]
        if packed:
            n_bytes += max(packed)
            n_params += parameters[f"{name}.weight"]
    return round(8 * n_bytes / n_params) if n_params else None
