"""Write tests/fixtures/vllm_cli.json: what vLLM's own parsers make of generated command lines.

    python tools/vllm_oracle_cases.py record WHEELS N > tests/fixtures/vllm_cli.json

In: the folder of unpacked wheels (see vllm_options.py). Out: JSON, each command line with its
outcomes by version: the options set, or "refused". `run FOLDER VERSION` answers the lines on
standard input for one version. The lines are the same for the same N.
"""

# argparse has no public way to list the actions of a parser
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import vllm_parser

VERSIONS = (
    "0.6.0 0.6.6.post1 0.7.3 0.8.2 0.8.5 0.9.0 0.9.2 0.10.2 0.11.0 0.11.2 0.12.0 0.15.1 0.17.1"
    " 0.20.2 0.26.0 0.33.0"
).split()
#: what the fixture records; a value that is no scalar or list of them is recorded as "given"
DESTS = frozenset(
    "tensor_parallel_size pipeline_parallel_size data_parallel_size data_parallel_size_local"
    " data_parallel_rank decode_context_parallel_size prefill_context_parallel_size nnodes"
    " node_rank enable_expert_parallel headless distributed_executor_backend worker_use_ray dtype"
    " quantization kv_cache_dtype max_model_len max_num_seqs max_num_batched_tokens"
    " gpu_memory_utilization kv_cache_memory_bytes enforce_eager enable_chunked_prefill"
    " enable_prefix_caching disable_hybrid_kv_cache_manager block_size num_gpu_blocks_override"
    " cpu_offload_gb swap_space speculative_config speculative_model spec_model runner task convert"
    " enable_lora load_format trust_remote_code hf_overrides attention_backend"
    " max_cudagraph_capture_size optimization_level compilation_config served_model_name port host"
    " seed tokenizer max_loras limit_mm_per_prompt".split()
)
#: pieces of command lines, plain ones first, then what users get wrong, then the nasty
ATOMS = [
    line.split()
    for line in """
-tp 4
--tensor-parallel-size 2
--tensor_parallel_size=2
--tensor-parallel 8
-tp=4
-pp 2
--pipeline-parallel-size=2
--pipeline-parallel 2
-dp 2
--data-parallel-size 4
--data_parallel_size=2
-dpl 1
-dcp 2
-pcp 2
-n 2
--nnodes 2
-r 1
--node-rank 0
--enable-expert-parallel
-ep
--headless
--distributed-executor-backend ray
--distributed-executor-backend=mp
--dtype bfloat16
--dtype=half
--quantization awq
-q fp8
-q=gptq_marlin
--kv-cache-dtype fp8
--kv_cache_dtype=fp8_e5m2
--max-model-len 8192
--max_model_len=32k
--max-model-len 32K
--max-model-len 25.6k
--max-model-len 1M
--max-model-len auto
--max-model-len -1
--max-num-seqs 64
--max-num-batched-tokens 8192
--max-num-batched-tokens 8k
--gpu-memory-utilization 0.95
--gpu-memory-utilization .9
--gpu-memory-util 0.9
--kv-cache-memory-bytes 10G
--enforce-eager
--no-enforce-eager
--enable-prefix-caching
--no-enable-prefix-caching
--enable-chunked-prefill
--no-enable-chunked-prefill
--cpu-offload-gb 10
--swap-space 4
--block-size 32
--served-model-name name
--trust-remote-code
--port 8000
--host 0.0.0.0
--seed 0
--load-format auto
--tokenizer T
--runner pooling
--task embed
--convert embed
--enable-lora --max-loras 2
--attention-backend FLASH_ATTN
--num-gpu-blocks-override 100
-O3
-O=2
-O 1
-O0
--compilation-config {"level":3}
--speculative-config {"model":"D","num_speculative_tokens":3}
--speculative-config.model D --speculative-config.num_speculative_tokens 3
--speculative_config.model=D
--speculative-model D
--spec-model D
-sc {"method":"ngram"}
--hf-overrides {"a":1}
--hf-overrides.a.b 1
--limit-mm-per-prompt {"image":1}
--limit-mm-per-prompt.image 2
--limit-mm-per-prompt image=2
--worker-use-ray
--disable-log-requests
--disable-log-stats
--num-scheduler-steps 8
--device cuda
--config server.yaml
--enable-auto-tool-choice --tool-call-parser hermes
""".strip().splitlines()
]
WRONG = [
    line.split()
    for line in """
--tp 4
-tp4
-tp
--tensor-parallel-size
--tensor-parallel-size two
--tensor-parallel-size 2.0
--max-model-len 32.5K
--max-model-len 8kk
--max-model-length 8192
--max-model 4096
--max-num 8
--gpu-memory-utilization 90%
--gpu-memory-utilization=0.9.5
--quant awq
--quantization nosuch
--dtype bf16
--dtype=fp16
--enforce-eager=1
--enforce-eager true
--enable-chunked-prefill=False
--enable-chunked-prefill False
--disable-prefix-caching
--disable-chunked-prefill
--no-trust-remote-code
--kv-cache-dtype int4
--block-size 17
--distributed-executor-backend slurm
--speculative-config {model:D}
--hf-overrides notjson
--load-format nosuch
-d 2
-t 4
-p 2
-e
-ep=true
--enable
--data-parallel 2
--served-model-name a b
--served-model-name
--unknown-flag
--unknown-flag 3
--model
--config
--config server.txt
--config=server.yaml
--config server.yaml --config server.yaml
--seed -1
--seed -1.5
--seed --1
--seed= 3
--port=
--swap_space=4
--max_num_seqs= 8
-q
-q=
-n2
-qawq
-qfp8
-r1
-tp=
-O
-O.level 3
-O.mode=3
-cc.mode=3
-cc {"mode":3}
--compilation-config 3
-.5
-1
-1.5
--
-- N
-
--port 8000 --
N
--enable-auto-tool-choice
--tensor-parallel-size=2=3
--tensor__parallel-size 2
--Tensor-Parallel-Size 2
--tensor-parallel-size\u00a02
--speculative-config.model
--speculative-config. D
--spec.model D
--limit-mm.image 1
--hf-overrides.list+ a,b --hf-overrides.list+=c
--no-no-enforce-eager
--no-dtype
--quantization None
--max-model-len None
--max-num-seqs None
--hf-overrides None
--tokenizer None
--speculative-config None
--tensor-parallel-size 1_0
--tensor-parallel-size=\u0664
-tp 4 -tp 2
--max-model-len 8192 --max_model_len 4096
--model N
--model=N
--model N --model L
--nnodes=2
--optimization-level 2
--optimization-level x
--help
-h
--version
-v
""".strip().splitlines()
]


def cases(n: int) -> list[tuple[str, list[str]]]:
    """Return n command lines as (form, words): every atom alone, then random mixtures."""
    alone = [("serve", ["M", *atom]) for atom in ATOMS + WRONG]
    alone += [("serve", [*atom, "M"]) for atom in WRONG]
    alone += [("serve", atom) for atom in WRONG if atom[0] in ("--model", "--model=N", "--")]
    alone += [("api_server", ["--model", "M", *atom]) for atom in WRONG[-40:]]
    draw = random.Random(20)  # fixed on purpose: the lines are the same every time
    mixed = [_mixture(draw) for _ in range(n - len(alone))]
    return alone + mixed


def _mixture(draw: random.Random) -> tuple[str, list[str]]:
    form = draw.choices(("serve", "api_server", "legacy"), (8, 3, 1))[0]
    pieces = draw.sample(ATOMS, draw.randint(1, 5))
    if draw.random() < 0.3:
        pieces.append(draw.choice(WRONG))
    draw.shuffle(pieces)
    model = ["M"] if form == "serve" else [draw.choice(("--model", "--model=M")), "M"]
    if model[0] == "--model=M":
        model = ["--model=M"]
    at = draw.choice((0, 0, 0, len(pieces), draw.randint(0, len(pieces))))
    words = [word for piece in [*pieces[:at], model, *pieces[at:]] for word in piece]
    if draw.random() < 0.05:
        words.remove("M") if "M" in words else None
    return form, words


def outcome(parser: argparse.ArgumentParser, form: str, words: list[str]) -> Any:
    """Return the recorded options that a line sets, or "refused"."""
    arguments = ["serve", *words] if form == "serve" else words
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            _validate(parser.parse_args(list(arguments)), form)
            given = vars(_without_defaults(parser, arguments))
    except (Exception, SystemExit):  # noqa: BLE001  (a traceback ends vLLM like a refusal)
        return "refused"
    tag = given.pop("model_tag", None)
    model = tag if form == "serve" and tag is not None else given.get("model")
    found = {dest: _recorded(value) for dest, value in given.items() if dest in DESTS}
    return {**found, "model": model}


def _validate(parsed: argparse.Namespace, form: str) -> None:
    if form == "legacy":
        return
    loaded = [m for name, m in sys.modules.items() if re.fullmatch(r"vllm\..*cli_args", name)]
    checks = [
        m.validate_parsed_serve_args for m in loaded if hasattr(m, "validate_parsed_serve_args")
    ]
    if getattr(parsed, "chat_template", None) is None:
        for check in checks:
            check(parsed)


def _without_defaults(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Parse so that only what stands on the line is in the result."""
    serve = vllm_parser.subparser(parser) if parser._subparsers else parser
    saved = [(action, action.default) for action in serve._actions]
    try:
        for action, _ in saved:
            action.default = argparse.SUPPRESS
        return parser.parse_args(list(arguments))
    finally:
        for action, default in saved:
            action.default = default


def _recorded(value: object) -> object:
    if dataclasses.is_dataclass(value) or isinstance(value, dict):
        return "given"
    if value is None or isinstance(value, int | float | str | bool):
        return value
    return [str(item) for item in value] if isinstance(value, list | tuple) else "given"


def run(folder: Path, version: str, lines: list[Any]) -> list[Any]:
    """Return the outcome of each (form, words) for one version; null where it has no such form."""
    vllm_parser.prepare(folder, version)
    parsers: dict[str, Any] = {}
    for form in ("serve", "api_server", "legacy"):
        try:
            parsers[form] = vllm_parser.build(form)
        except TypeError:  # 0.7.x: the legacy server's own add_argument call is wrong
            parsers[form] = None
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        Path("server.yaml").write_text("tokenizer-mode: auto\n")
        return [
            outcome(parsers[form], form, words) if parsers[form] else None for form, words in lines
        ]


def record(wheels: Path, n: int, versions: list[str]) -> dict[str, Any]:
    """Return the fixture: each line with its outcomes, equal outcomes of versions together."""
    lines = cases(n)
    by_version = {}
    for version in versions:
        command = [sys.executable, "-W", "ignore", __file__, "run", str(wheels / version), version]
        done = subprocess.run(
            command, input=json.dumps(lines), capture_output=True, text=True, check=True
        )
        by_version[version] = json.loads(done.stdout.splitlines()[-1])
        print(version, file=sys.stderr)
    recorded = []
    for i, (form, words) in enumerate(lines):
        outcomes: dict[str, Any] = {}
        for version in versions:
            key = json.dumps(by_version[version][i], sort_keys=True)
            if key != "null":
                outcomes.setdefault(key, []).append(version)
        recorded.append(
            {
                "form": form,
                "words": words,
                "outcomes": [[names, json.loads(key)] for key, names in outcomes.items()],
            }
        )
    return {"python": ".".join(map(str, sys.version_info[:3])), "lines": recorded}


if __name__ == "__main__":
    if sys.argv[1] == "run":
        print(json.dumps(run(Path(sys.argv[2]), sys.argv[3], json.load(sys.stdin))))
    else:
        names = sys.argv[4:] or VERSIONS
        fixture = record(Path(sys.argv[2]).resolve(), int(sys.argv[3]), names)
        rows = ",\n".join(json.dumps(line, sort_keys=True) for line in fixture["lines"])
        print(f'{{"python": "{fixture["python"]}", "lines": [\n{rows}\n]}}')
