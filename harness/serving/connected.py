"""A server that answered, with all that must be known of it before a case is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.serving import latency
from harness.serving.count import ByFiles, by_files, counter
from harness.serving.eos import eos_ids
from harness.serving.prompts import IdPrompts, Prompts, TextPrompts
from harness.serving.server import Server, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.openai.client import Client
    from harness.serving.latency import Latency
    from harness.serving.plan import ServingPlan


@dataclass(frozen=True)
class Connected:
    """A server, ready to be measured.

    Attributes:
        server: how to ask it.
        prompts: that it has not seen.
        shortest: tokens of the shortest of them.
        files: tokenizer of the model's files, for a server that counts nothing.
        idle: its latency.
    """

    server: Server
    prompts: Prompts
    shortest: int
    files: ByFiles | None
    idle: Latency


async def connected(client: Client, plan: ServingPlan, salt: str, doing: Callable[[str], None]) -> Connected:
    """Call a server, learn how it counts, and how long it takes for next to nothing.

    Args:
        client: to it.
        plan: what is to be asked.
        salt: what tells this call's prompts from others'.
        doing: told what goes on.

    Raises:
        ServerError: it cannot be measured.
    """
    doing("calling the server")
    server = await connect(client, plan.served, eos_ids(plan.source), plan.silence_s)
    files = by_files(plan.source)
    prompts: Prompts
    if server.takes_ids:
        vocab_size = plan.source.architecture.vocab_size if plan.source else server.told.vocab_size
        prompts, shortest = IdPrompts(vocab_size, plan.seed, salt), 1
    else:
        count = await counter(server, files)
        prompts = TextPrompts(count, plan.seed, salt)
        shortest = await count(str(await prompts.shortest()))
    doing("measuring the latency of an idle request")
    return Connected(server, prompts, shortest, files, await latency.measure(server, prompts, plan.silence_s))
