"""`omnipilot fit`: options, scripts and commands in, a verdict, its checks and changes out."""

import json
from pathlib import Path

import click
import pytest

from omnipilot_slurm.cli import main as edge
from omnipilot_slurm.cli.fit import fit as command
from omnipilot_slurm.cluster.snapshot_file import FILE as SNAPSHOT_FILE

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def fit(capsys, tmp_path):
    """Run `omnipilot fit` with no site's settings; give its code and what it printed."""

    def run(*words):
        code = edge.main(["fit", "--config", str(tmp_path), *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def job(tmp_path):
    """Write a batch script."""

    def write(*lines):
        path = tmp_path / "job.sh"
        path.write_text("\n".join(("#!/bin/bash", *lines)) + "\n")
        return str(path)

    return write


def test_a_server_that_starts_is_shown_with_its_memory(fit):
    code, out, err = fit(
        "--model",
        LLAMA_8B,
        "--gpu",
        "H100-80GB",
        "--vllm-version",
        "0.11.0",
        "--max-model-len",
        "8k",
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{LLAMA_8B} on H100-SXM5-80GB, TP 1, vLLM 0.11.0: starts"
    assert [line[:20].strip() for line in lines[2:11]] == [
        "GiB per GPU",
        "W weights",
        "A activations",
        "N non-torch",
        "G CUDA graphs",
        "K KV cache",
        ". outside the budget",
        "budget",
        "total",
    ]
    bar = lines[12]
    assert len(bar) == 62
    assert bar.strip("[]").replace("W", "").replace("A", "").replace("K", "").strip(".") == ""
    assert "smallest changes" not in out


def test_a_server_that_fails_is_told_why_and_what_would_start(fit):
    code, out, _ = fit("--model", LLAMA_8B, "--gpu", "L4", "--vllm-version", "0.11.0")
    assert code == 3
    assert "FAILS   kv_cache: " in out
    assert "one request of 131072 tokens needs 16.00 GiB" in out
    assert out.split("smallest changes that start:\n")[1].startswith("  --max-model-len ")


def test_a_bar_runs_out_of_a_card_that_the_weights_exceed(fit):
    _, out, _ = fit("--model", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "L4")
    (bar,) = (line for line in out.splitlines() if line.startswith("[W"))
    assert bar.startswith("[" + "W" * 60 + "|W")


def test_the_json_object_holds_what_the_text_says(fit):
    code, out, _ = fit("--json", "--model", LLAMA_8B, "--gpu", "L4", "--vllm-version", "0.11.0")
    found = json.loads(out)
    assert code == 3
    assert (found["verdict"], found["gpu"], found["p_starts"]) == ("fails", "l4", None)
    assert {"id", "kind", "ok", "detail"} == found["checks"][0].keys()
    assert found["memory"]["weights_gib"].keys() == {"lo", "mid", "hi"}
    assert found["memory"]["kv_need_gib"]["mid"] == 16.0
    assert found["max_model_len_that_fits"] > 0
    assert found["smallest_changes"][0]["sets"] == "max_model_len"
    assert found["smallest_changes"][0]["starts"] == "starts"


def test_without_a_card_only_what_holds_on_every_card_is_decided(fit):
    code, out, _ = fit("--model", "Qwen/Qwen2.5-7B-Instruct", "--tp", "8")
    assert code == 3
    assert "28 attention heads / TP 8 leaves 4" in out
    assert "(unsure, p = " in out


def test_of_a_pair_the_weaker_card_decides(fit):
    code, out, _ = fit("--model", LLAMA_8B, "--gpu", "L40S + L4", "--vllm-version", "0.11.0")
    assert code == 3
    assert "  L40S + L4: the weaker card decides\n" in out


def test_heads_and_capability_stand_in_for_what_is_not_known(fit):
    code, out, _ = fit("--model", "mine/unheard-of", "--heads", "14", "--tp", "4", "--gpus", "4")
    assert code == 3
    assert out.startswith("a model that is not known on any card, TP 4, any vLLM: fails\n")
    assert "  model 'mine/unheard-of' is not known\n" in out
    code, out, _ = fit("--model", "mine/unheard-of", "--capability", "7.0", "--quantization", "awq")
    assert code == 3
    assert "awq needs compute capability 7.5, the card has 7.0" in out


def test_a_whole_command_is_read_with_what_the_version_does_not_take(fit):
    code, out, _ = fit(
        "--gpu", "H100-80GB", "--vllm-version", "0.19.0", "--",
        "vllm", "serve", LLAMA_8B, "--max-model-len", "8192", "--swap-space", "4",
    )  # fmt: skip
    assert code == 3
    assert "FAILS   options: --swap-space: unrecognized argument; vLLM has it up to 0.17.1" in out
    assert "  leave out --swap-space\n" in out


def test_the_module_form_of_a_server_is_read(fit):
    code, out, _ = fit(
        "--gpu", "H100-80GB", "--",
        "python3", "-m", "vllm.entrypoints.openai.api_server",
        "--model", LLAMA_8B, "--max-model-len", "8192", "--tensor-parallel-size", "2",
    )  # fmt: skip
    assert code == 0
    assert out.startswith(f"{LLAMA_8B} on H100-SXM5-80GB, TP 2, any vLLM: starts")


def test_a_batch_script_brings_its_gpus_its_version_and_its_variables(fit, job):
    script = job(
        "#SBATCH --gres=gpu:h100:2",
        "export VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        "apptainer exec --nv docker://vllm/vllm-openai:v0.11.0 \\",
        "  vllm serve Qwen/Qwen2.5-7B-Instruct -tp 4 --max-model-len 65536",
    )
    code, out, _ = fit(script)
    assert code == 3
    assert "on H100-SXM5-80GB, TP 4, vLLM 0.11.0: fails" in out
    assert "TP 4 = 4 of 2 GPUs held" in out
    assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN lets vLLM start beyond it" in out


def test_of_a_gres_type_that_several_cards_share_what_holds_for_each_is_said(fit, job):
    script = job("#SBATCH --gres=gpu:a100:1", f"vllm serve {LLAMA_8B} --max-model-len 8192")
    code, out, _ = fit(script, "--vllm-version", "0.11.0")
    assert code == 0
    assert " on A100-SXM4-40GB or A100-SXM4-80GB, TP 1, vLLM 0.11.0: starts\n" in out
    assert "  a100 may be a100-40g or a100-80g: only what holds for each is decided\n" in out
    assert "ok      card: starts on a100-40g and a100-80g\n" in out
    assert " on A100-SXM4-80GB, TP 1" in fit(script, "--gpu", "A100-80GB")[1]


def test_a_card_that_may_be_too_small_is_a_doubt_that_says_which(fit):
    words = ("--model", LLAMA_8B, "--gpu", "V100", "--dtype", "half", "--max-model-len", "8192")
    code, out, _ = fit(*words)
    assert code == 4
    assert "unsure  card: starts on v100-32g; on v100-16g: " in out
    assert out.endswith("smallest changes that start:\n  the card v100-32g\n")


def test_a_gres_type_that_is_no_card_leaves_the_card_open(fit, job):
    script = job("#SBATCH --gres=gpu:blue:1", f"vllm serve {LLAMA_8B} --max-model-len 8192")
    _, out, _ = fit(script)
    assert " on any card, TP 1" in out
    assert "  the GPUs 'blue' are no card that is known; give --gpu\n" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "error: no model is named\nhint: give --model, or a whole vllm command\n"),
        (
            ["--model", LLAMA_8B, "--max-model-len", "banana"],
            2,
            "error: --max-model-len must be like 8192, 32k or auto, was 'banana'\n",
        ),
        (
            ["--model", LLAMA_8B, "--max-model-len", "0"],
            2,
            "error: --max-model-len must be like 8192, 32k or auto, was '0'\n",
        ),
        (
            ["--model", LLAMA_8B, "--capability", "80"],
            2,
            "error: --capability must be like 8.0, was '80'\n",
        ),
        (
            ["--model", LLAMA_8B, "--vllm-version", "latest"],
            2,
            "error: --vllm-version must be like 0.10.2, was 'latest'\n",
        ),
        (
            ["--model", LLAMA_8B, "--gpu-memory-utilization", "nan"],
            2,
            "error: --gpu-memory-utilization must be above 0 and at most 1, was nan\n",
        ),
        (
            ["--model", LLAMA_8B, "--gpus", "1", "--nodes", "2"],
            2,
            "error: --gpus must be at least --nodes, was 1\n",
        ),
        (
            ["--model", LLAMA_8B, "--gpu", "L4 + L4 + L4"],
            2,
            "error: --gpu must be one card or a pair X + Y, was 'L4 + L4 + L4'\n",
        ),
        (
            ["--model", LLAMA_8B, "--", "vllm", "serve", "x"],
            2,
            (
                "error: --model stands beside a script or command, which says it itself\n"
                "hint: change it there, or describe the server by options alone\n"
            ),
        ),
        (
            ["--", "vllm", "bench", "x"],
            2,
            (
                "error: the command behind -- must start a server (vllm serve ...,"
                " python -m vllm.entrypoints.openai.api_server ...), was 'vllm bench x'\n"
            ),
        ),
        (
            ["--model", LLAMA_8B, "--gpu", "H101"],
            1,
            (
                "error: gpu 'H101' is not known; near names: h100\n"
                "hint: map it in cluster.gpu_map, or describe it in gpus.yaml\n"
            ),
        ),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(fit, words, code, said):
    assert fit(*words) == (code, "", said)


def test_a_script_without_a_server_is_refused_with_where_to_look(fit, job):
    code, _, err = fit(job("srun hostname"))
    assert code == 2
    assert err.endswith("hint: omnipilot detect shows what is read in it\n")


def test_the_documented_example_is_what_is_printed(fit):
    page = (Path(__file__).parents[3] / "docs" / "fit.md").read_text()
    example = page.split("```\n$ omnipilot fit ")[1].split("\n```")[0]
    words, _, shown = example.partition("\n")
    assert fit(*words.split())[1] == shown + "\n"


def test_every_option_says_what_it_is():
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert len(options) > 20
    assert [option.name for option in options if not option.help] == []


def test_the_sites_version_counts_where_nothing_says_one(fit, job, tmp_path):
    (tmp_path / "omnipilot.yaml").write_text(
        'schema: 1\nvllm:\n  version: "0.11.0"\n  by_partition: {old: "0.6.3"}\n'
    )
    _, out, _ = fit("--model", LLAMA_8B, "--gpu", "L4")
    assert out.startswith(f"{LLAMA_8B} on L4, TP 1, vLLM 0.11.0: fails\n")
    assert "  vLLM 0.11.0 by the site's settings\n" in out
    script = job("#SBATCH --partition=old --gres=gpu:l4:1", f"vllm serve {LLAMA_8B}")
    assert "TP 1, vLLM 0.6.3: fails" in fit(script)[1]
    assert "TP 1, vLLM 0.19.0: fails" in fit(script, "--vllm-version", "0.19.0")[1]


def test_the_published_cluster_says_its_cards_and_their_names(fit, job, tmp_path):
    published = tmp_path / "published"
    published.mkdir()
    (tmp_path / "omnipilot.yaml").write_text(f"schema: 1\ndaemon:\n  publish: {published}\n")
    example = Path(__file__).parents[3] / "etc" / "cluster-example.yaml"
    (published / SNAPSHOT_FILE).write_bytes(example.read_bytes())
    _, out, _ = fit("--json", "--model", LLAMA_8B, "--gpu", "L4", "--vllm-version", "0.11.0")
    cards = [c["value"] for c in json.loads(out)["smallest_changes"] if c["sets"] == "gpu"]
    assert cards == ["a100-40g", "a100-80g"]
    script = job("#SBATCH --gres=gpu:a100:1", f"vllm serve {LLAMA_8B} --max-model-len 8192")
    assert " on A100-SXM4-40GB, TP 1" in fit(script)[1]


def test_contradictory_options_are_read_as_vllm_does_and_warned_of(fit):
    serve = ("--gpu", "H100", "--vllm-version", "0.11.0", "--", "vllm", "serve", LLAMA_8B)
    _, out, _ = fit(*serve, "-tp", "1", "-tp", "2", "--max-num-seqs", "0")
    assert "TP 2, vLLM 0.11.0" in out
    assert "  warning: -tp: given more than once; the last one counts\n" in out
    assert "  warning: --max-num-seqs: must be at least 1, not 0\n" in out


def test_a_quantization_that_the_files_do_not_have_is_better_left_out(fit):
    serve = ("--gpu", "H100", "--vllm-version", "0.11.0", "--", "vllm", "serve")
    code, out, _ = fit(*serve, "Qwen/Qwen3-8B", "-q", "awq")
    assert code == 3
    assert "smallest changes that start:\n  leave out --quantization\n" in out


def test_a_share_beyond_the_whole_card_is_refused_with_one_that_starts(fit):
    serve = ("--gpu", "H100", "--vllm-version", "0.11.0", "--", "vllm", "serve", LLAMA_8B)
    code, out, _ = fit(*serve, "--max-model-len", "8192", "--gpu-memory-utilization", "1.5")
    assert code == 3
    assert "smallest changes that start:\n  --gpu-memory-utilization 0.95\n" in out


def test_why_and_what_to_try_first_stand_at_the_head(fit):
    _, out, _ = fit("--model", LLAMA_8B, "--gpu", "L4", "--vllm-version", "0.11.0")
    verdict, why, first, *_ = out.splitlines()
    assert verdict.endswith(": fails")
    assert why.endswith("for the cache; one request of 131072 tokens needs 16.00 GiB")
    assert first == "  try first: --max-model-len 24576"
    _, out, _ = fit("--model", LLAMA_8B, "--gpu", "H100", "--vllm-version", "0.11.0")
    assert out.splitlines()[1] == ""


def test_without_a_card_it_is_asked_for(fit):
    code, out, _ = fit("--model", LLAMA_8B, "--vllm-version", "0.11.0")
    assert code == 4
    assert out.splitlines()[1].startswith("  no card is named: starts on ")
    assert out.endswith("\nname the card with --gpu to have its memory judged\n")
