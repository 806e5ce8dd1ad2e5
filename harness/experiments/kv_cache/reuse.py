"""The second turn of a conversation: how long until its first token, when the first turn is already in the cache?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.workload import Case
from results.amounts import counted

if TYPE_CHECKING:
    from harness.experiments.kv_cache.asked import Asked
    from harness.options import Options


def runs(asked: Asked) -> list[Options]:
    """A prompt of the whole text, of which a longer and longer prefix is in the cache; beside it a full prefill.

    Raises:
        UserError: a prefix is as long as the prompt, or longer.
    """
    prompt = asked.text_tokens - 1  # and one token comes out
    prefixes = asked.prefixes or tuple(sorted({prompt * part // 4 for part in range(4)} | {prompt - 1}))
    if (longest := max(prefixes)) >= prompt:
        raise UserError(
            f"--prefix {longest}: the prompt has {counted(prompt, 'token')} (-p + -n - 1), of which at least one "
            "must be new"
        )
    reused = (Case(prefix, prompt - prefix, 1, kv_cache="prefix") for prefix in prefixes)
    return [asked.run(cases=(Case(0, prompt, 1), *reused))]
