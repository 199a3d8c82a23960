from dataclasses import replace

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.vllm.launch import assess
from omnipilot_slurm.vllm.report import Place

CATALOG = Catalog.load(site=None)
COEFFICIENTS = load_startup()
LLAMA_70B = CATALOG.model("meta-llama/Meta-Llama-3-70B-Instruct").facts
A100 = CATALOG.gpu("A100-80GB-PCIe")


@pytest.mark.parametrize(
    ("tensor_parallel", "verdict", "failed"),
    [
        (1, Starts.FAILS, ["weights", "kv_cache"]),
        (3, Starts.FAILS, ["heads", "kv_heads", "widths"]),
        (4, Starts.STARTS, []),
    ],
)
def test_a_70b_model_starts_only_where_its_weights_and_heads_fit(tensor_parallel, verdict, failed):
    engine = EngineArgs(tensor_parallel=tensor_parallel)
    report = assess(LLAMA_70B, A100, engine, Place(n_gpus=4), COEFFICIENTS)
    assert report.verdict is verdict
    assert [check.id for check in report.checks if check.ok is Starts.FAILS] == failed


def test_more_gpus_than_the_job_holds_is_a_certain_failure():
    report = assess(LLAMA_70B, None, EngineArgs(tensor_parallel=8), Place(n_gpus=4), COEFFICIENTS)
    assert report.verdict is Starts.FAILS
    failed = [check.detail.text for check in report.checks if check.ok is Starts.FAILS]
    assert failed == ["TP 8 = 8 of 4 GPUs held"]


@pytest.mark.parametrize("version", ["0.6.3", "0.8.5", "0.10.2", "0.20.2", "0.33.0", None])
def test_the_longest_length_that_fits_starts_and_one_block_more_does_not(version):
    small = replace(A100, mem_gib=60.0)
    wide = replace(LLAMA_70B, max_model_len=1_000_000)
    engine = EngineArgs(
        tensor_parallel=4,
        max_num_batched_tokens=4096,
        chunked_prefill=True,
        max_num_seqs=256,
        vllm_version=version,
    )
    longest = assess(wide, small, engine, Place(), COEFFICIENTS).max_model_len_that_fits
    assert longest
    for length, starts in ((longest, True), (longest + 16, False)):
        at = replace(engine, max_model_len=length)
        report = assess(wide, small, at, Place(), COEFFICIENTS)
        assert (report.verdict is Starts.STARTS) == starts
