from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnipilot_slurm.vllm.flags import (
    FORMS,
    CommandLine,
    Effect,
    Occurrence,
    Splice,
    engine_args,
    parse,
)
from omnipilot_slurm.vllm.options import VERSIONS

if TYPE_CHECKING:
    from omnipilot_slurm.records import EngineArgs

NEWEST = VERSIONS[-1]


def read(line: str, version: str | None = NEWEST, form: str = "vllm serve") -> CommandLine:
    return parse(line.split(), version=version, form=form)


def told(line: str, version: str | None = NEWEST, form: str = "vllm serve") -> EngineArgs:
    return engine_args(read(line, version, form), version=version)


def texts(line: CommandLine, effect: Effect) -> list[str]:
    return [problem.text for problem in line.problems if problem.effect is effect]


# --- where things stand -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word", "offset"),
    [
        ("M -tp 4", 2, 0),
        ("M -tp=4", 1, 4),
        ("M --tensor-parallel-size 4", 2, 0),
        ("M --tensor_parallel_size=4", 1, 23),
        ("M --tensor-parallel 4", 2, 0),
        ("-tp 4 M", 1, 0),
        ("--model M -tp 4", 3, 0),
        ("M --config f.yaml -tp 4", 4, 0),
        ("M -O3 --speculative-config.model D -tp 4", 5, 0),
    ],
)
def test_the_value_of_tp_is_found_where_it_stands(line: str, word: int, offset: int) -> None:
    found = read(line).last("tensor_parallel_size")
    assert found is not None
    assert (found.value_index, found.offset, found.text) == (word, offset, "4")


def test_an_occurrence_says_how_it_is_written() -> None:
    assert read("M --tensor_parallel=4").occurrences == (
        Occurrence(
            dest="tensor_parallel_size",
            option="--tensor-parallel-size",
            written="--tensor-parallel",
            option_index=1,
            value_index=1,
            offset=18,
            text="4",
        ),
    )


def test_an_option_with_several_values_swallows_all_words_up_to_the_next_option() -> None:
    line = read("--served-model-name a b M -tp 2", "0.15.1")
    found = line.last("served_model_name")
    assert found is not None
    assert (found.text, found.more) == ("a", ("b", "M"))
    assert line.positionals == ()


def test_a_flag_has_no_value_word() -> None:
    found = read("M --no-enable-prefix-caching").last("enable_prefix_caching")
    assert found is not None
    assert (found.value_index, found.text) == (None, "false")


def test_dotted_keys_become_one_occurrence_with_their_json() -> None:
    line = "M --speculative_config.model D --speculative-config.num_speculative_tokens 3"
    (found,) = read(line).occurrences
    assert (found.dest, found.value_index) == ("speculative_config", None)
    assert found.text == '{"model": "D", "num_speculative_tokens": 3}'


def test_the_last_of_two_counts_and_a_warning_says_so() -> None:
    args = told("M -tp 2 --tensor-parallel-size 4")
    assert args.tensor_parallel == 4
    assert args.warnings == ("--tensor-parallel-size: given more than once; the last one counts",)


# --- what vLLM refuses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "version", "text"),
    [
        (
            "M --tp 4",
            NEWEST,
            "--tp: unrecognized argument; write -tp and the value behind a space",
        ),
        ("M -tp4", NEWEST, "-tp4: unrecognized argument; write -tp and the value behind a space"),
        ("M -tp", NEWEST, "-tp: expected one argument"),
        ("M --served-model-name", NEWEST, "--served-model-name: expected at least one argument"),
        (
            "M -tp two",
            NEWEST,
            "-tp: invalid int value: 'two'",
        ),
        (
            "M --max-model-len 32.5K",
            "0.10.2",
            "--max-model-len: invalid human_readable_int value: '32.5K'",
        ),
        ("M --dtype bf16", NEWEST, "--dtype: invalid choice: 'bf16'"),
        (
            "M --quant awq",
            NEWEST,
            "--quant: ambiguous option, could match --quantization, --quantization-config",
        ),
        (
            "M --swap-space 4",
            "0.20.2",
            "--swap-space: unrecognized argument; vLLM has it up to 0.17.1",
        ),
        (
            "M --kv-cache-memory-bytes 10G",
            "0.9.2",
            "--kv-cache-memory-bytes: unrecognized argument; vLLM has it from 0.10.2",
        ),
        (
            "M --max-model-length 8192",
            NEWEST,
            "--max-model-length: unrecognized argument; the nearest is --max-model-len",
        ),
        ("M --enforce-eager=1", NEWEST, "--enforce-eager: ignored explicit argument '1'"),
        ("M N", NEWEST, "N: unrecognized argument"),
        ("-tp 2", "0.7.3", "the following arguments are required: model_tag"),
        (
            "--model M",
            "0.9.2",
            (
                "--model: with `vllm serve`, you should provide the model as a positional argument"
                " (0.8.3 to 0.11.0 refuse the option)"
            ),
        ),
        ("M --config f.json", NEWEST, "--config: the file must end in .yaml or .yml, not 'f.json'"),
        (
            'M --compilation-config {"level":3}',
            "0.20.2",
            "--compilation-config: unexpected key 'level'",
        ),
        (
            "M --enable-auto-tool-choice",
            NEWEST,
            "--enable-auto-tool-choice requires --tool-call-parser",
        ),
        ("M --help", NEWEST, "--help: prints and exits"),
        (
            "--port 1 M --served-model-name n",
            "0.17.1",
            "--served-model-name: the model must be the first word of `vllm serve` (from 0.17.0)",
        ),
    ],
)
def test_a_refusal_names_the_word_and_the_reason(line: str, version: str, text: str) -> None:
    assert [problem.text for problem in read(line, version).refusals] == [text]


@pytest.mark.parametrize(
    "line",
    [
        "M -tp 4 -pp=2",
        "M --disable-prefix-caching",
        "M --max-model-len 25.6k --max-num-batched-tokens 8K",
        "M --max-model-len auto",
        "M --max-model-len -1",
        "M -O3 -cc.mode=3 --hf-overrides.a.b 1",
        "-tp 2 M",
        "--model M -tp 2",
        "M --quantization None",
        "-- M",
    ],
)
def test_what_the_newest_vllm_takes_is_not_refused(line: str) -> None:
    assert read(line).refusals == ()


# --- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "refused"),
    [("0.8.3", True), ("0.8.4", False), ("0.8.5.post1", False), ("0.33.0", False)],
)
def test_suffixes_are_read_from_0_8_4_on(version: str, refused: bool) -> None:
    assert bool(read("M --max-model-len 32k", version).refusals) is refused


def test_an_unread_version_between_two_that_differ_is_unsure() -> None:
    line = read("M --max-num-batched-tokens 8k", "0.9.0.1")
    assert line.refusals == ()
    assert texts(line, Effect.UNSURE) == [
        "--max-num-batched-tokens: invalid int value: '8k' (vLLM refuses it in 0.9.0 only)"
    ]


def test_a_version_newer_than_all_that_were_read_may_know_more_options() -> None:
    line = read("M --brand-new-option 3", "9.9.9")
    assert line.refusals == ()
    assert texts(line, Effect.UNSURE) == ["--brand-new-option: unrecognized argument"]


def test_an_unknown_version_takes_what_any_version_has_and_says_where_they_differ() -> None:
    line = read("M --swap-space 4 -tp 2", None)
    assert line.refusals == ()
    assert texts(line, Effect.UNSURE) == ["--swap-space: vLLM has it only up to 0.17.1"]


def test_an_unknown_version_takes_a_prefix_that_means_one_thing_where_it_means_any() -> None:
    line = read("M --quant awq", None)
    found = line.last("quantization")
    assert found is not None
    assert found.text == "awq"
    assert texts(line, Effect.UNSURE) == [
        "--quant: read as --quantization; ambiguous or unknown in other versions of vLLM"
    ]


def test_an_option_that_takes_other_values_elsewhere_is_noted_where_it_occurs() -> None:
    assert texts(read("M --enable-chunked-prefill", None), Effect.UNSURE) == [
        "--enable-chunked-prefill: takes other values in other versions of vLLM"
    ]
    assert read("M -tp 2", None).problems == ()


@pytest.mark.parametrize(("line", "level"), [("M -O3", 3), ("M -O=2", 2), ("M -O 1", 1)])
def test_an_optimization_level_is_read_in_each_spelling(line: str, level: int) -> None:
    assert told(line).optimization_level == level


# --- forms --------------------------------------------------------------------------------------


def test_the_api_server_ignores_a_positional_and_serves_its_default() -> None:
    args = told("M", "0.20.2", "openai.api_server")
    assert args.model is None
    assert args.warnings == (
        "M: ignored; this server takes its model from --model",
        "no model is named: vLLM would serve Qwen/Qwen3-0.6B",
    )


def test_an_old_api_server_refuses_a_positional() -> None:
    assert [p.text for p in read("M", "0.9.2", "openai.api_server").refusals] == [
        "M: unrecognized argument"
    ]


@pytest.mark.parametrize(
    ("line", "version"), [("M -tp 2", "0.26.0"), ("M -tp 2", None), ("--model M -tp 2", "0.9.2")]
)
def test_an_image_takes_the_model_as_its_entrypoint_does(line: str, version: str | None) -> None:
    args = told(line, version, "docker entrypoint")
    assert (args.model, args.tensor_parallel) == ("M", 2)


def test_the_legacy_server_has_no_front_end_options() -> None:
    assert read("--model M --served-model-name n", "0.15.1", "api_server").refusals == ()
    assert [
        p.text for p in read("--model M --enable-auto-tool-choice", "0.15.1", "api_server").refusals
    ] == ["--enable-auto-tool-choice: unrecognized argument"]


# --- words that are not seen --------------------------------------------------------------------


def test_an_unseen_value_is_unknown_and_nothing_else_is() -> None:
    line = parse(["M", "-tp", None, "--dtype", "half"], version=NEWEST)
    args = engine_args(line)
    assert args.unknown == {"tensor_parallel"}
    assert args.dtype == "half"


def test_an_unseen_first_word_is_the_model() -> None:
    args = engine_args(parse([None, "-tp", "2"], version=NEWEST))
    assert (args.model, args.unknown) == (None, {"model"})
    assert args.warnings == ()


def test_an_unseen_word_behind_the_model_may_be_any_option() -> None:
    line = parse(["M", "-tp", "2", None, "-pp", "2"], version=NEWEST)
    assert line.open_from == 3
    args = engine_args(line)
    assert "tensor_parallel" in args.unknown
    assert "pipeline_parallel" not in args.unknown
    assert (args.tensor_parallel, args.pipeline_parallel) == (2, 2)


def test_a_splice_may_set_what_stands_before_it_and_not_what_stands_behind() -> None:
    args = engine_args(parse(["M", "-pp", "2", Splice(), "-tp", "2"], version=NEWEST))
    assert "pipeline_parallel" in args.unknown
    assert "tensor_parallel" not in args.unknown
    assert args.model == "M"


def test_a_word_behind_a_splice_may_be_its_last_options_value() -> None:
    line = parse([Splice(), "M", "-tp", "2"], version=NEWEST)
    assert [found.certain for found in line.positionals] == [False]
    assert engine_args(line).model is None


def test_a_splice_in_the_place_of_a_value_is_an_unknown_value_and_may_be_more() -> None:
    line = parse(["M", "-tp", Splice(), "--enforce-eager"], version=NEWEST)
    args = engine_args(line)
    assert "tensor_parallel" in args.unknown
    assert "quantization" in args.unknown
    assert args.enforce_eager


def test_a_configuration_file_leaves_open_what_the_line_does_not_set() -> None:
    args = told("M --config f.yaml -tp 2")
    assert args.config_file == "f.yaml"
    assert "tensor_parallel" not in args.unknown
    assert {"max_model_len", "quantization"} <= args.unknown


# --- settings -----------------------------------------------------------------------------------

MEMORY_LINE = (
    "M -tp 4 -pp 2 -dp 2 -dpl 1 -ep -dcp 2 -pcp 2 --nnodes 2 --node-rank 1 --headless"
    " --distributed-executor-backend ray --dtype half -q fp8 --kv-cache-dtype fp8"
    " --max-model-len 32K --max-num-seqs 64 --max-num-batched-tokens 8k"
    " --gpu-memory-utilization .95 --kv-cache-memory-bytes 10G --enforce-eager"
    " --no-enable-chunked-prefill --enable-prefix-caching --disable-hybrid-kv-cache-manager"
    " --block-size 32 --num-gpu-blocks-override 100 --cpu-offload-gb 10 --runner pooling"
    " --enable-lora --load-format dummy --trust-remote-code --attention-backend FLASHINFER"
    " --max-cudagraph-capture-size 512 -O2"
    ' --speculative-config {"model":"D","num_speculative_tokens":3} --hf-overrides {"a":1}'
    ' --limit-mm-per-prompt {"image":2} --mm-processor-kwargs {"max_pixels":1k}'
    " --mm-encoder-tp-mode data --disable-chunked-mm-input --skip-mm-profiling"
    " --language-model-only"
)


def test_every_option_that_matters_reaches_its_field() -> None:
    args = told(MEMORY_LINE)
    expected: dict[str, Any] = {
        "model": "M",
        "tensor_parallel": 4,
        "pipeline_parallel": 2,
        "data_parallel": 2,
        "data_parallel_local": 1,
        "expert_parallel": True,
        "decode_context_parallel": 2,
        "prefill_context_parallel": 2,
        "n_nodes": 2,
        "node_rank": 1,
        "headless": True,
        "executor": "ray",
        "dtype": "half",
        "quantization": "fp8",
        "kv_cache_dtype": "fp8",
        "max_model_len": 32768,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 8000,
        "gpu_memory_utilization": 0.95,
        "kv_cache_memory_bytes": 10 * 2**30,
        "enforce_eager": True,
        "chunked_prefill": False,
        "prefix_caching": True,
        "hybrid_kv_cache": False,
        "block_size": 32,
        "n_gpu_blocks": 100,
        "cpu_offload_gib": 10.0,
        "pooling": True,
        "lora": True,
        "load_format": "dummy",
        "trust_remote_code": True,
        "attention_backend": "FLASHINFER",
        "max_cudagraph_capture_size": 512,
        "optimization_level": 2,
        "speculative": True,
        "speculative_model": "D",
        "speculative_tokens": 3,
        "hf_overrides": '{"a":1}',
        "mm_limits": '{"image": 2}',
        "mm_processor_kwargs": '{"max_pixels": 1000}',
        "mm_encoder_data_parallel": True,
        "chunked_mm_input": False,
        "skip_mm_profiling": True,
        "language_model_only": True,
    }
    assert {name: getattr(args, name) for name in expected} == expected
    assert args.unknown == frozenset()


@pytest.mark.parametrize(
    ("line", "version", "field", "value"),
    [
        ("M --worker-use-ray", "0.6.0", "executor", "ray"),
        ("M --task embed", "0.9.2", "pooling", True),
        ("M --convert embed", NEWEST, "pooling", True),
        ("M --runner generate", NEWEST, "pooling", False),
        ("M --speculative-model D --num-speculative-tokens 5", "0.7.3", "speculative_tokens", 5),
        ("M --spec-model D", NEWEST, "speculative_model", "D"),
        ("M --quantization None", NEWEST, "quantization", None),
        ("M --max-model-len auto", NEWEST, "max_model_len", -1),
        ("M --enable-chunked-prefill=False", "0.7.3", "chunked_prefill", False),
        ("M --data-parallel-rank 1", NEWEST, "data_parallel_rank", 1),
        (
            "M --limit-mm-per-prompt image=1,video=0",
            "0.8.5",
            "mm_limits",
            '{"image": 1, "video": 0}',
        ),
        ("M --limit-mm-per-prompt.video 0", NEWEST, "mm_limits", '{"video": 0}'),
        ("M --enable-multimodal-encoder-data-parallel", "0.10.0", "mm_encoder_data_parallel", True),
        ("M --mm-encoder-tp-mode weights", NEWEST, "mm_encoder_data_parallel", False),
        ("M --no-disable-chunked-mm-input", NEWEST, "chunked_mm_input", True),
    ],
)
def test_older_and_rarer_spellings_reach_their_field(
    line: str, version: str, field: str, value: object
) -> None:
    assert getattr(told(line, version), field) == value


@pytest.mark.parametrize(
    ("line", "field", "text"),
    [
        ("M -tp 0", "tensor_parallel", "-tp: must be at least 1, not 0"),
        ("M -pp -2", "pipeline_parallel", "-pp: must be at least 1, not -2"),
        ("M --max-model-len 0", "max_model_len", "--max-model-len: must be at least 1, not 0"),
        (
            "M --gpu-memory-utilization nan",
            "gpu_memory_utilization",
            "--gpu-memory-utilization: must be a finite number, not 'nan'",
        ),
    ],
)
def test_a_value_out_of_range_is_unknown_and_a_warning_says_why(
    line: str, field: str, text: str
) -> None:
    args = told(line)
    assert args.unknown == {field}
    assert args.warnings == (text,)


@pytest.mark.parametrize(
    "words",
    [
        ["M", "--hf-overrides", "[" * 60_000],
        ["M", "--hf-overrides.a", "[" * 60_000],
        ["M", "--hf-overrides" + ".a" * 30_000, "1"],
        ["M", "--max-model-len", "9" * 5_000],
        ["M", "--max-model-len", "9" * 400 + "k"],
        ["M", "--max-model-len", "\u00b2"],
        ["M", "--speculative-config", '{"num_speculative_tokens": "\u00b2"}'],
        ["M", "--compilation-config", "(" * 500],
        ["M", "--limit-mm-per-prompt", '{"a":' * 900 + "1" + "}" * 900],
        ["M", "--limit-mm-per-prompt", '{"image":' + "9" * 5_000 + "}"],
        ["M", "--mm-processor-kwargs", "[]"],
    ],
)
@pytest.mark.parametrize("version", [None, "0.8.5", NEWEST])
def test_monstrous_values_are_read_without_an_error(words: list[str], version: str | None) -> None:
    args = engine_args(parse(words, version=version), version=version)
    assert args.model == "M"


def test_a_configuration_file_whose_name_is_not_shown_is_still_one() -> None:
    args = engine_args(parse(["M", "--config", None], version=NEWEST))
    assert args.config_file == ""
    assert "config_file" in args.unknown


def test_rope_scaling_of_older_versions_joins_the_overrides() -> None:
    line = 'M --rope-scaling {"factor":2.0} --hf-overrides {"a":1}'
    assert told(line, "0.9.2").hf_overrides == '{"a": 1, "rope_scaling": {"factor": 2.0}}'


def test_a_refused_value_is_unknown_not_guessed() -> None:
    args = told("M -tp two")
    assert (args.tensor_parallel, args.unknown) == (1, {"tensor_parallel"})


# --- properties ---------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        ["-tp", "4"],
        ["--tensor_parallel_size=2"],
        ["-pp", "2"],
        ["--max-model-len", "32k"],
        ["--max_model_len=8192"],
        ["--dtype", "half"],
        ["--enforce-eager"],
        ["--no-enforce-eager"],
        ["--speculative-config", '{"model": "D"}'],
        ["--speculative-config.model", "D"],
        ["--runner", "pooling"],
        ["-q", "awq"],
        ["--gpu-memory-utilization", "0.8"],
    ]
)
NASTY = st.sampled_from(
    [
        "--",
        "-",
        "",
        "-1",
        "-.5",
        "-O",
        "-O3",
        "--config",
        "f.yaml",
        "--model",
        "M",
        "-tp",
        "=",
        "-=",
    ]
) | st.text(max_size=8)
WORDS = st.lists(NASTY | PIECES.map(lambda piece: piece[0]) | st.none() | st.builds(Splice))
SLOW_MACHINE = settings(deadline=None)


@SLOW_MACHINE
@given(
    WORDS, st.sampled_from([*VERSIONS, None, "0.8", "0.10.1.1", "9.9.9"]), st.sampled_from(FORMS)
)
def test_any_words_are_read_and_every_text_stands_where_it_is_said_to(
    words: list[str | Splice | None], version: str | None, form: str
) -> None:
    line = parse(words, version=version, form=form)
    engine_args(line, version=version)
    for found in line.occurrences:
        assert 0 <= found.option_index < len(words)
        if found.value_index is not None and found.text is not None:
            word = words[found.value_index]
            assert isinstance(word, str)
            assert word[found.offset :] == found.text
    for positional in line.positionals:
        word = words[positional.word]
        if isinstance(word, str) and not word.startswith("-"):  # else it may be spelled out
            assert positional.text == word


@SLOW_MACHINE
@given(st.lists(PIECES, max_size=6), st.data())
def test_what_is_said_without_seeing_all_words_holds_for_the_words(
    pieces: list[list[str]], data: st.DataObject
) -> None:
    hidden = data.draw(st.sets(st.integers(0, max(len(pieces) - 1, 0))))
    seen: list[str | Splice | None] = ["M"]
    full = ["M"]
    for i, piece in enumerate(pieces):
        full += piece
        if i not in hidden:
            seen += piece
        elif len(piece) == 2 and data.draw(st.booleans()):
            seen += [piece[0], None]
        else:
            seen.append(Splice())
    truth = engine_args(parse(full, version="0.15.1"), version="0.15.1")
    args = engine_args(parse(seen, version="0.15.1"), version="0.15.1")
    for field in dataclasses.fields(args):
        name = field.name
        if name in ("warnings", "unknown", "speculative_model", "speculative_tokens"):
            continue
        assert name in args.unknown or getattr(args, name) == getattr(truth, name)


@SLOW_MACHINE
@given(
    st.fixed_dictionaries(
        {
            "tensor_parallel_size": st.integers(1, 64),
            "max_model_len": st.integers(1, 10**6),
            "gpu_memory_utilization": st.floats(0.01, 1.0),
            "max_num_seqs": st.integers(1, 4096),
        }
    ),
    st.randoms(use_true_random=False),
    st.sampled_from(VERSIONS),
)
def test_settings_written_in_any_spelling_and_order_are_read_back(
    values: dict[str, Any], draw: Any, version: str
) -> None:
    pieces = []
    for name, value in values.items():
        option = "--" + (name if draw.random() < 0.5 else name.replace("_", "-"))
        pieces.append([f"{option}={value}"] if draw.random() < 0.5 else [option, str(value)])
    draw.shuffle(pieces)
    words = ["M", *(word for piece in pieces for word in piece)]
    args = engine_args(parse(words, version=version))
    assert (args.tensor_parallel, args.max_model_len) == (
        values["tensor_parallel_size"],
        values["max_model_len"],
    )
    assert (args.gpu_memory_utilization, args.max_num_seqs) == (
        values["gpu_memory_utilization"],
        values["max_num_seqs"],
    )
