"""MLX, by mlx-lm's models and caches: on Metal, on CUDA or on the CPU, whichever the installed mlx offers.

What imports the engine lives in `devices`, `weights` and `session`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.base import BackendError

if TYPE_CHECKING:
    from backends.base import EngineInfo, LoadRequest, Session


def describe() -> EngineInfo:
    """The versions of mlx and mlx-lm, and the accelerator that this build of mlx can use here."""
    from backends.mlx import devices

    return devices.describe()


def load(request: LoadRequest) -> Session:
    """Load a Hugging Face directory with mlx-lm; no tokenizer is needed.

    Raises:
        BackendError: mlx-lm does not know the architecture, a file is missing or torn, or the request asks for
            something that MLX does not have.
        OutOfMemoryError: the weights do not fit.
    """
    from backends.mlx import devices, session, weights

    if request.engine_options:
        raise BackendError(f"mlx knows no engine option {', '.join(request.engine_options)}")
    if request.flash_attn != "auto":
        raise BackendError("mlx has one attention kernel: use -fa auto")
    device = devices.use(request.device)
    model, config = weights.load(request.artifact, request.weight_format)
    return session.MlxSession(model, config, request, device)
