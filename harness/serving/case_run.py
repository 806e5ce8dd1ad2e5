"""One case on a server: prompts, an untimed warm-up, then round after round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from backends.openai.chunk import parse
from backends.openai.client import encoded
from backends.openai.errors import ServerError, UncountedError
from harness.serving.checks import (
    LEAST_PREFILL_S,
    LEAST_TO_COMPARE,
    check_kept,
    check_lengths,
    check_uncached,
    is_too_short,
)
from harness.serving.reply import Reply, read
from harness.serving.round import arrivals_s, patience, play
from results.amounts import counted

if TYPE_CHECKING:
    from backends.openai.client import Recording
    from harness.serving.connected import Connected
    from harness.serving.plan import ServingPlan
    from harness.serving.prompts import Prompt
    from harness.workload import Case

_REFERENCES = 3
_PREFILL_SHOWS = 2  # a TTFT of so many idle ones: most of it is prefill, and comparing two tells something


@dataclass(frozen=True)
class Round:
    """A measured repetition.

    Attributes:
        started_at: UTC, ISO 8601.
        replies: one a stream, checked.
        counted_by: who says how many tokens the replies have.
        kept_tokens: the fewest that the server kept of a prompt whose beginning it had; None: not meant, or not told.
        shows_kept: it does not tell, and TTFT shows that it kept the most of it.
    """

    started_at: str
    replies: list[Reply]
    kept_tokens: int | None
    counted_by: str
    shows_kept: bool = False


class CaseRun:
    """The rounds of one case.

    Args:
        plan: of the run.
        found: the server.
        case: what is asked of it.
        number: of the first round's prompts, among all of this process.
    """

    def __init__(self, plan: ServingPlan, found: Connected, case: Case, number: int) -> None:
        self._plan, self._server, self._prompts, self._case = plan, found.server, found.prompts, case
        self._found, self._number = found, number
        self._n_first = case.n_depth
        self._n_prompt, self._n_gen = case.decode_start, max(case.n_gen, 1)
        self._patience = patience(plan.silence_s, self._n_gen)
        self._reference_s = 0.0  # TTFT of a quarter of the prompt
        self._whole_s = 0.0  # TTFT of the whole prompt, nothing of it cached
        self._counts_by_files = False

    async def warm_up(self) -> None:
        """Everything that is not timed: one round, and what the checks need.

        Raises:
            ServerError: the case cannot be done.
        """
        needed, room = self._n_prompt + self._n_gen, self._server.told.context
        if room is not None and needed > room:
            raise ServerError(f"{needed} tokens of context are needed, and the server gives a stream {room}")
        if not self._server.counts:
            await self._confirm()
        first = await self._round(0)
        is_told = first.replies[0].cached_tokens is not None
        if is_told or self._n_prompt < LEAST_TO_COMPARE * self._found.shortest:
            return
        if not self._n_first:
            self._reference_s = await self._quarter_s()
        # Where several streams wait for each other, or a chunk for several tokens, TTFT holds more than a prefill.
        elif self._case.batch == 1 and round(self._n_gen / len(first.replies[0].arrivals_ns)) == 1:
            self._whole_s = await self._new_prompt_s(self._n_prompt)

    async def measure(self, repetition: int) -> Round:
        """One timed round.

        Args:
            repetition: from 1.

        Raises:
            ServerError: it did not do the work that was asked.
        """
        found = await self._round(repetition)
        if self._reference_s and is_too_short(min(reply.ttft_s for reply in found.replies), self._reference_s):
            self._reference_s = min(self._reference_s, await self._quarter_s())  # it may have been a busy moment
        for reply in found.replies:
            check_uncached(
                reply,
                self._n_prompt,
                n_first=self._n_first,
                shortest=self._found.shortest,
                reference_s=self._reference_s,
            )
        if not self._whole_s:
            return found
        return replace(found, shows_kept=await self._shows_kept(found.replies[0].ttft_s))

    async def _shows_kept(self, ttft_s: float) -> bool:
        idle_s = self._found.idle.server_s
        try:
            return check_kept(ttft_s, self._whole_s, idle_s, self._n_first, self._n_prompt)
        except ServerError:  # it may have been a busy moment, which a new prompt then sees as well
            self._whole_s = max(self._whole_s, await self._new_prompt_s(self._n_prompt))
            return check_kept(ttft_s, self._whole_s, idle_s, self._n_first, self._n_prompt)

    async def _round(self, repetition: int) -> Round:
        case, server, plan = self._case, self._server, self._plan
        made = await self._prompts.make(self._n_first, self._n_prompt, case.batch, self._next())
        for prompt in made.first:
            read(await self._ask(prompt, 1))
        bodies = [encoded(server.body(prompt, self._n_gen, cached=bool(self._n_first))) for prompt in made.whole]
        starts_s = arrivals_s(plan.rate, case.batch, plan.seed, repetition) if plan.rate else None
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        recordings = await play(server.client, server.path, bodies, self._patience, starts_s)
        replies = [self._counted(read(each)) for each in recordings]
        for reply in replies:
            check_lengths(reply, server.dialect, self._n_prompt, self._n_gen)
        cached = [reply.cached_tokens for reply in replies]
        kept = min(n for n in cached if n is not None) if self._n_first and None not in cached else None
        if kept == 0:
            raise ServerError(
                f"the server kept none of the {counted(self._n_first, 'token that was', 'tokens that were')} sent "
                "before: its prompt cache is off, or keeps longer ones only"
            )
        return Round(started_at, replies, kept, self._counted_by())

    async def _confirm(self) -> None:
        """One reply that is not streamed tells both lengths, where a stream does not."""
        made = await self._prompts.make(0, self._n_prompt, 1, self._next())
        body: dict[str, Any] = self._server.body(made.whole[0], self._n_gen, stream=False)
        whole = parse(await self._server.client.post(self._server.path, body))
        if whole.prompt_tokens is None or whole.completion_tokens is None:
            if self._found.files is None:
                raise UncountedError
            self._counts_by_files = True
            return
        if (whole.prompt_tokens, whole.completion_tokens) != (self._n_prompt, self._n_gen):
            because = f"; {self._server.dialect.lacks}" if self._server.dialect.lacks else ""
            raise ServerError(
                f"not the work that was asked: {whole.prompt_tokens} of {counted(self._n_prompt, 'prompt token')}, "
                f"short reply: {whole.completion_tokens} of {counted(self._n_gen, 'token')}, finish_reason "
                f"{whole.finish_reason}{because}"
            )

    def _counted_by(self) -> str:
        if self._counts_by_files:
            return "the tokenizer of the model's files, from the text"
        return "the server, in the stream" if self._server.counts else "the server, of a reply that is not streamed"

    def _counted(self, reply: Reply) -> Reply:
        """With the tokens of its text where only the model's files can tell them."""
        if self._found.files is None or not self._counts_by_files:
            return reply
        return replace(reply, completion_tokens=self._found.files.of_reply(reply.text))

    async def _quarter_s(self) -> float:
        """TTFT of a quarter of the prompt, the best of some; 0 where most of it is no prefill, which tells nothing."""
        ttft_s, idle_s = await self._new_prompt_s(self._n_prompt // 4), self._found.idle.server_s
        shows = ttft_s > _PREFILL_SHOWS * idle_s and ttft_s - idle_s > LEAST_PREFILL_S
        return ttft_s if shows else 0.0

    async def _new_prompt_s(self, n_prompt: int) -> float:
        """TTFT of a prompt that no cache has seen, the best of some."""
        times_s = []
        for _ in range(_REFERENCES):
            made = await self._prompts.make(0, n_prompt, 1, self._next())
            times_s.append(read(await self._ask(made.whole[0], 1)).ttft_s)
        return min(times_s)

    async def _ask(self, prompt: Prompt, n_tokens: int) -> Recording:
        body = encoded(self._server.body(prompt, n_tokens, cached=bool(self._n_first)))
        return await self._server.client.stream(self._server.path, body, self._patience)

    def _next(self) -> int:
        self._number += 1
        return self._number
