"""Whatever is typed, `omnipilot fit` answers it or says what it must be: never a traceback."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnipilot_slurm.catalog.local import FolderLookup, PatientFolders
from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.cli.fit_question import Cluster, Held, Reader
from omnipilot_slurm.cli.fit_text import as_json, as_text
from omnipilot_slurm.errors import OmnipilotError
from omnipilot_slurm.site_settings import VllmSettings
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.changes import smallest_changes
from omnipilot_slurm.vllm.fit import answer

CATALOG = Catalog.load(site=None)
COEFFICIENTS = load_startup()
CARDS = tuple(CATALOG.gpu(name) for name in ("l4", "a100-80g", "h100"))
#: words that are no numbers, no names, or far beyond what anybody runs
ODD = (
    "", "0", "-1", "1", "2", "7", "9" * 30, "1e400", "1e-300", "nan", "inf", "None", "\u0664",
    "{", "[1, 2]", "null", "x" * 300, "auto", "32K", "0.99", "fp8", "fp8_e5m2", "awq",
    '{"image": 0, "video": 0}', '{"image": -3}', '{"image": {"count": "x", "width": -1}}',
    '{"max_pixels": 1e400}', '{"max_pixels": -5}', '{"method": "ngram"}',
    '{"rope_scaling": {"factor": "x", "rope_type": "yarn"}}',
)  # fmt: skip
OPTIONS = (
    "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-dp", "--max-model-len",
    "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization", "--quantization",
    "--dtype", "--kv-cache-dtype", "--cpu-offload-gb", "--block-size", "--speculative-config",
    "--limit-mm-per-prompt", "--mm-processor-kwargs", "--hf-overrides", "--config", "--swap-space",
    "--kv-cache-memory-bytes", "--num-gpu-blocks-override", "--compilation-config", "-O",
    "--nnodes",
    "--data-parallel-size-local", "-dcp", "--load-format", "--runner", "--no-enable-prefix-caching",
    "--enable-expert-parallel", "--no-enable-chunked-prefill", "--", "--never-heard-of",
)  # fmt: skip
MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct", "deepseek-ai/DeepSeek-R1",
    "openai/gpt-oss-120b", "Qwen/Qwen3-Next-80B-A3B-Instruct", "OpenGVLab/InternVL3-78B",
)  # fmt: skip
VERSIONS = (None, "0.5.3", "0.8.5", "0.11.0", "0.33.0", "0.99.0")


@pytest.fixture(scope="module")
def reader():
    """Give a reader that knows no site and no folder."""
    folders = FolderLookup(roots=[], public_only=False)
    yield Reader(
        CATALOG,
        PatientFolders(folders, 1.0),
        vllm=VllmSettings(version=None, by_partition={}),
        cluster=Cluster(cards=CARDS, gres={}),
    )
    folders.close()


option = st.sampled_from(OPTIONS)
words = st.lists(st.one_of(option, st.sampled_from(ODD)), max_size=8)


@settings(max_examples=300, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    words=words,
    version=st.sampled_from(VERSIONS),
    gpu=st.sampled_from((None, "H100", "V100", "L4", "L4 + H100", "P100", "MI300X")),
)
def test_any_command_line_is_answered_or_refused_with_a_reason(reader, model, words, version, gpu):
    held = Held(gpu=gpu, n_gpus=8)
    try:
        asked = reader.from_command(["vllm", "serve", model, *words], {}, version, held)
    except OmnipilotError:
        return
    report = answer(asked.question, COEFFICIENTS)
    changes = smallest_changes(asked.question, report, COEFFICIENTS)
    assert as_text(asked.question, report, changes, asked.said)
    shown = as_json(asked.question, report, changes, asked.said)
    assert shown["verdict"] in {"starts", "fails", "unsure"}
    assert (shown["p_starts"] is None) == (shown["verdict"] != "unsure")
