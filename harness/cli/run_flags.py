"""The flags of `tokenroof run` alone, in the groups in which `--help` shows them."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.choices import KV_FORMATS, Format
from harness.cli.flags import ENGINES, RESULT

_LIST = "a list like 512,1024, 0-8192+1024 or 512-4096*2"

_of_model = partial(typer.Option, rich_help_panel="The model")

Models = Annotated[
    list[str] | None,
    _of_model(
        "-m",
        "--model",
        metavar="MODEL",
        help="Preset, Hugging Face directory or cached repository, .gguf file, ollama:NAME, lmstudio:PUBLISHER/NAME; "
        "may be repeated. Default: llama-3.2-1b.",
    ),
]
Artifacts = Annotated[
    list[str] | None,
    _of_model(
        "--artifact",
        metavar="ENGINE=PATH",
        help="An engine's own file of the one model that -m names; once for each engine.",
    ),
]
Download = Annotated[
    bool, _of_model("--download", help="Fetch a Hugging Face repository (-m org/name) that is not in its cache.")
]
AllowPickle = Annotated[
    bool,
    _of_model(
        "--allow-unsafe-pickle",
        help="Read weights that are there as pickles alone (pytorch_model.bin). The risk: a pickle may run any code as "
        "you. torch lets nothing but tensors out of it; a gap in that check would let a stranger in.",
    ),
]
Weights = Annotated[
    str | None,
    _of_model(
        "-w",
        "--weights",
        metavar="LIST",
        help="bf16, f16, f32; 8bit, 4bit: each engine's usual; q6_k, q4_k_m, q4_0, iq4_xs, … (llama.cpp); "
        "6bit, 3bit, 4bit-g32, mxfp4, nvfp4, … (mlx); int8, int4, fp8 (torch with torchao). Default: bf16; a .gguf "
        "file and what is quantised already, as it is.",
    ),
]

_of_work = partial(typer.Option, rich_help_panel="The work")

SuiteName = Annotated[
    str | None,
    _of_work(
        "--suite",
        metavar="NAME",
        help="quick, standard or full: a fixed list of models and cases, the same on every machine.",
    ),
]
PromptTokens = Annotated[
    str | None,
    _of_work("-p", "--n-prompt", metavar="LIST", help=f"Prompt tokens, 0: decode only; {_LIST}. Default: 512."),
]
GenTokens = Annotated[
    str | None, _of_work("-n", "--n-gen", metavar="LIST", help="Tokens to generate, 0: prefill only. Default: 128.")
]
Depths = Annotated[
    str, _of_work("-d", "--n-depth", metavar="LIST", help="Tokens in the KV cache before the timed work.")
]
Batches = Annotated[
    str,
    _of_work("-B", "--batch", "--concurrency", metavar="LIST", help="Sequences at once; of a server: streams at once."),
]
KvCaches = Annotated[
    str,
    _of_work(
        "--kv-cache",
        metavar="LIST",
        help="on; off: each step runs its whole prefix again; prefix: -d tokens are kept of another text's cache.",
    ),
]
PrefixCache = Annotated[
    bool, _of_work("--prefix-cache", help="Short for --kv-cache prefix: what a server's prompt cache saves.")
]
PromptFile = Annotated[
    Path | None,
    _of_work(
        "--prompt-file",
        metavar="FILE",
        help="A text whose tokens are read in place of random ids, over and over where it is too short.",
    ),
]
Seed = Annotated[int, _of_work("--seed", metavar="N", min=0, max=2**63 - 1, help="Of the token stream.")]

_of_engine = partial(typer.Option, rich_help_panel=ENGINES)

Backends = Annotated[
    str | None,
    _of_engine(
        "--backend",
        metavar="NAMES",
        help="torch, mlx, llama.cpp, or some of them: torch,llama.cpp; openai: a server. "
        "Default: all that suit this machine.",
    ),
]
Threads = Annotated[
    str | None, _of_engine("-t", "--threads", metavar="LIST", help="CPU threads. Default: the physical cores.")
]
FlashAttention = Annotated[
    str, _of_engine("-fa", "--flash-attn", metavar="LIST", help="Flash attention: on, off, auto.")
]
KeyFormats = Annotated[
    str,
    _of_engine("-ctk", "--cache-type-k", metavar="LIST", help=f"Format of cached keys: {', '.join(KV_FORMATS)}."),
]
ValueFormats = Annotated[
    str, _of_engine("-ctv", "--cache-type-v", metavar="LIST", help="Format of cached values, as -ctk.")
]
CacheKinds = Annotated[
    str,
    _of_engine("--cache-kind", metavar="LIST", help="Cache class of transformers, as dynamic, static (torch)."),
]
BatchTokens = Annotated[
    str, _of_engine("-b", "--batch-size", metavar="LIST", help="Tokens llama.cpp is given at once.")
]
UbatchTokens = Annotated[
    str, _of_engine("-ub", "--ubatch-size", metavar="LIST", help="Tokens llama.cpp computes at once.")
]

_of_place = partial(typer.Option, rich_help_panel="What lies in which memory (llama.cpp)")

GpuLayers = Annotated[str, _of_place("-ngl", "--n-gpu-layers", metavar="LIST", help="Layers on the GPU, -1: all.")]
CpuExperts = Annotated[
    str,
    _of_place(
        "-ncmoe",
        "--n-cpu-moe",
        metavar="LIST",
        help="Of so many layers, from the first on, the experts stay in the host's memory.",
    ),
]
NoKvOffload = Annotated[
    str, _of_place("-nkvo", "--no-kv-offload", metavar="LIST", help="1: the KV cache stays in the host's memory.")
]
SplitModes = Annotated[
    str, _of_place("-sm", "--split-mode", metavar="LIST", help="Over several GPUs: none, layer, row.")
]
TensorSplits = Annotated[
    str | None, _of_place("-ts", "--tensor-split", metavar="LIST", help="Each GPU's part, as in 3/1.")
]
Rpc = Annotated[
    str | None,
    _of_place(
        "--rpc", metavar="HOST:PORT,…", help="Machines that lend their memory, each running tokenroof serve-tier."
    ),
]
AllowPartial = Annotated[
    bool,
    _of_place(
        "--allow-partial", help="Measure what the engine placed otherwise than asked, too; else it is a failed row."
    ),
]

_of_server = partial(typer.Option, rich_help_panel="A server (--backend openai)")

BaseUrl = Annotated[
    str | None, _of_server("--base-url", metavar="URL", help="The server's address, as http://127.0.0.1:8080/v1.")
]
ApiKey = Annotated[
    str | None, _of_server("--api-key", metavar="KEY", envvar="OPENAI_API_KEY", help="The server's key.")
]
Rate = Annotated[
    float | None,
    _of_server(
        "--rate",
        metavar="R",
        min=1e-3,
        max=1e6,
        help="Requests a second, sent by chance (Poisson) in place of all at once.",
    ),
]
ServerDevice = Annotated[
    str | None,
    _of_server("--on", metavar="DEVICE", help="The server's device in `tokenroof devices`, for its ceiling."),
]

_of_time = partial(typer.Option, rich_help_panel="How often and how long")

Repetitions = Annotated[
    int | None,
    _of_time(
        "-r",
        "--repetitions",
        metavar="N",
        min=1,
        help="Of a case in each launch. Default: 3, or 5 where loading takes long.",
    ),
]
Launches = Annotated[
    int | None,
    _of_time(
        "--launches", metavar="N", min=1, help="Starts of each engine. Default: 3, or 1 where loading takes long."
    ),
]
MaxTime = Annotated[
    float | None, _of_time("--max-time", metavar="SECONDS", min=1, help="Start nothing more after so long.")
]
Timeout = Annotated[
    float | None,
    _of_time("--timeout", metavar="SECONDS", min=1, help="A worker or a server silent for so long is taken for hung."),
]

_of_result = partial(typer.Option, rich_help_panel=RESULT)

Resume = Annotated[bool, _of_result("--resume", help="Run only what the output lacks, or what failed.")]
DryRun = Annotated[bool, _of_result("--dry-run", help="Print the plan, its time, disk and memory; run nothing.")]
ResultFormat = Annotated[Format, _of_result("--format", help="Of the result on standard output.")]
