"""Print how launches are judged: `make bench-launch`.

Each public outcome of tests/fixtures/launch_outcomes.yaml with its error_kind, our verdict and the
check that answered; the totals against the bars; then each model of tests/fixtures/
kv_memory_h100.csv, predicted from a fit that has not seen it. No verdict is fitted on.
"""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.records import EngineArgs, Starts
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.train.startup import fit, read_figures
from omnipilot_slurm.vllm.changes import smallest_changes
from omnipilot_slurm.vllm.fit import Question, answer, weaker
from omnipilot_slurm.vllm.launch import assess
from omnipilot_slurm.vllm.report import Place

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures"
#: another process held the GPU: nothing in the row says so
NOT_KNOWABLE = "F23"
#: which checks are the right reason for a kind of failure
RIGHT = {
    "weights_exceed_gpu": {"weights"},
    "tp_unset_with_many_gpus": {"weights"},
    "weights_exceed_budget": {"weights", "kv_cache"},
    "weights_leave_no_kv": {"kv_cache"},
    "kv_cache_zero_blocks": {"kv_cache"},
    "kv_cache_lt_max_model_len": {"kv_cache"},
    "kv_or_activation_oom": {"kv_cache"},
    "util_no_headroom": {"headroom", "free_memory"},
    "startup_oom_version_regression": {"headroom", "kv_cache"},
    "tp_heads_indivisible": {"heads"},
    "quant_capability_gate": {"quantization_capability"},
    "dtype_capability_gate": {"dtype"},
    "quant_group_misaligned": {"quantization_group"},
    "quant_kernel_min_tile": {"quantization_tile"},
    "fp8_block_misaligned": {"quantization_block"},
    "max_model_len_gt_model": {"max_model_len"},
    "tp_exceeds_node_gpus": {"node_gpus"},
    "tp_exceeds_visible_gpus": {"world_size"},
}
#: what a row's `quantization` is as an option; the rest is one, or describes the checkpoint
OPTIONS = {
    "fp8 (checkpoint)": None,
    "fp8 per-block online": "fp8_per_block",
    "compressed-tensors w4a16": "compressed-tensors",
}
#: the rows of kv_memory_h100.csv: the wording of their log is that of 0.11.1 to 0.16
H100_VERSION = "0.11.1"
H100_MODELS = {
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "Llama-3.3-70B-FP8": "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen3-0.6B": "Qwen/Qwen3-0.6B",
}
#: rows of figures that share a family with a model left out
FAMILY = {"openai/gpt-oss-20b": {"openai/gpt-oss-120b"}}


@dataclass(frozen=True)
class Judged:
    """One outcome and what was made of it."""

    case: dict
    verdict: Starts
    answered: str
    right: bool
    changes: tuple[str, ...]


def question_of(case: dict, catalog: Catalog) -> Question:
    """Return a row as the question that `omnipilot fit` would be asked."""
    try:
        model = catalog.model(case["model"]).facts
    except CatalogError:
        model = None
    version = case["vllm_version"]
    quantization = case["quantization"]
    engine = EngineArgs(
        tensor_parallel=case["tp"] or 1,
        pipeline_parallel=case["pp"] or 1,
        dtype=case["dtype"] or "auto",
        quantization=OPTIONS.get(quantization, quantization),
        kv_cache_dtype=case.get("kv_cache_dtype", "auto"),
        max_model_len=case["max_model_len"],
        max_num_seqs=case["max_num_seqs"],
        max_num_batched_tokens=case.get("max_num_batched_tokens"),
        gpu_memory_utilization=case["gpu_memory_utilization"],
        enforce_eager=case.get("enforce_eager", False),
        chunked_prefill=case.get("enable_chunked_prefill"),
        vllm_version=version.partition("-")[0] if version else None,
    )
    n_nodes = case["nodes"] or 1
    per_node = case["count"] // n_nodes if case["count"] else None
    capability = case.get("compute_capability")
    return Question(
        model=model,
        gpu=card_of(case, catalog),
        engine=engine,
        place=Place(n_gpus=per_node, gpus_per_node=per_node, n_nodes=n_nodes),
        cards=tuple(catalog.gpu(gpu_id) for gpu_id in catalog.gpu_ids()),
        siblings=() if model is None else catalog.siblings(model.id),
        heads=case.get("num_attention_heads"),
        capability=round(10 * float(capability)) if capability else None,
    )


def card_of(case: dict, catalog: Catalog):
    """Return the card of a row; of a mixed pair what both have; None where none is named."""
    names = [part.strip() for part in (case["gpu"] or "").split("+") if part.strip()]
    if not names:
        return None
    if len(names) == 1:
        return catalog.gpu(names[0], mem_gb=case["gpu_mem_gb"])
    return weaker(*(catalog.gpu(name) for name in names))


def judged(case: dict, catalog: Catalog, coefficients) -> Judged:
    """Judge one row; the check that answered is the first that has the verdict's state."""
    question = question_of(case, catalog)
    report = answer(question, coefficients)
    deciding = [check.id for check in report.checks if check.ok is report.verdict]
    at_fault = [check.id for check in report.checks if check.ok is not Starts.STARTS]
    answered = deciding[0] if at_fault and deciding else "-"
    right = bool(RIGHT.get(case["error_kind"], set()) & set(at_fault)) and (
        answered in RIGHT.get(case["error_kind"], set())
    )
    changes = smallest_changes(question, report, coefficients)
    return Judged(case, report.verdict, answered, right, tuple(c.text for c in changes))


def print_outcomes(catalog: Catalog, coefficients) -> None:
    """Print each outcome, then the totals."""
    cases = yaml.safe_load((FIXTURES / "launch_outcomes.yaml").read_text())
    rows = [judged(case, catalog, coefficients) for case in cases]
    print(
        f"{'case':5} {'outcome':7} {'error_kind':31} {'verdict':7} {'answered':24} smallest changes"
    )
    for row in rows:
        case = row.case
        mark = "" if case["error_kind"] is None else ("" if row.right else " (other reason)")
        print(
            f"{case['id']:5} {case['outcome']:7} {case['error_kind'] or '-':31} {row.verdict:7} "
            f"{row.answered + mark:24} {'; '.join(row.changes[:3])}"
        )
    print_totals([row for row in rows if row.case["id"] != NOT_KNOWABLE])


def print_totals(rows: list[Judged]) -> None:
    """Print the totals against the bars."""
    failures = [row for row in rows if row.case["outcome"] == "fail"]
    works = [row for row in rows if row.case["outcome"] == "works"]
    fails, unsure = Starts.FAILS, Starts.UNSURE
    n_right = sum(row.right for row in failures)
    print()
    bar(f"failures judged fails or unsure ({len(failures)})",
        sum(row.verdict in {fails, unsure} for row in failures), "=", len(failures))  # fmt: skip
    bar("failures judged fails", sum(row.verdict is fails for row in failures), ">=", 24)
    bar(f"working ones refused (of {len(works)})", sum(r.verdict is fails for r in works), "=", 0)
    bar(f"unsure (of {len(rows)})", sum(row.verdict is unsure for row in rows), "<=", 12)
    bar("unsure among the working", sum(row.verdict is unsure for row in works), "<=", 4)
    bar("right reason among the failures", n_right, ">=", 30)


def bar(name: str, value: float, relation: str, target: float) -> None:
    """Print a figure, its bar, and whether it is met."""
    met = {"=": value == target, ">=": value >= target, "<=": value <= target}[relation]
    print(f"{name:44} {value:6g}   bar {relation} {target:g}   {'met' if met else 'MISSED'}")


def print_left_out(catalog: Catalog, coefficients) -> None:
    """Predict each H100 row from a fit without its model and family."""
    figures = read_figures(FIXTURES / "startup_figures.yaml")
    print("\nmodel left out        tp   kv measured   predicted [lo, hi]   width")
    n_held = n_narrow = n_rows = 0
    with (FIXTURES / "kv_memory_h100.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            if not row["kv_cache_gib"]:
                continue
            name = H100_MODELS[row["model"]]
            left = {name} | FAMILY.get(name, set())
            refitted, _ = fit(
                [figure for figure in figures if figure.model not in left],
                lambda known: catalog.model(known).facts,
                coefficients,
            )
            engine = EngineArgs(
                tensor_parallel=int(row["tp"]),
                max_model_len=int(row["max_model_len"]),
                vllm_version=H100_VERSION,
            )
            gpu = catalog.gpu("H100-80GB")
            memory = assess(catalog.model(name).facts, gpu, engine, Place(), refitted).memory
            measured, kv = float(row["kv_cache_gib"]), memory.kv
            n_rows += 1
            n_held += kv.lo <= measured <= kv.hi
            n_narrow += kv.hi - kv.lo <= 6
            print(
                f"{row['model']:20} {row['tp']:>3} {measured:12.2f}   "
                f"[{kv.lo:6.2f}, {kv.hi:6.2f}]   {kv.hi - kv.lo:8.2f}"
            )
    bar(f"\nkv inside its interval (of {n_rows})", n_held, ">=", n_rows - 1)
    bar("intervals of at most 6 GiB", n_narrow, "=", n_rows)


def print_speed(catalog: Catalog, coefficients) -> None:
    """Time a verdict over the 40 arms of a decision, and a whole fit with its changes."""
    model = catalog.model("meta-llama/Llama-3.3-70B-Instruct").facts
    cards = [catalog.gpu(name) for name in ("a100-40g", "a100-80g", "l40s", "h100", "h200")]
    for version in ("0.10.2", None):
        arms = [
            (card, EngineArgs(tensor_parallel=tp, max_model_len=length, vllm_version=version))
            for card in cards
            for tp in (1, 2, 4, 8)
            for length in (8192, 32768)
        ]
        seconds = best(
            lambda arms=arms: [assess(model, c, e, Place(), coefficients) for c, e in arms]
        )
        said = version or "not known"
        bar(f"us a verdict, {len(arms)} arms, version {said}", 1e6 * seconds / len(arms), "<=", 100)
    case = yaml.safe_load((FIXTURES / "launch_outcomes.yaml").read_text())[0]
    question = question_of(case, catalog)
    seconds = best(lambda: smallest_changes(question, answer(question, coefficients), coefficients))
    bar("ms a fit with its smallest changes", 1e3 * seconds, "<=", 20)


def best(run) -> float:
    """Return the least of forty times, in seconds."""
    times = []
    for _ in range(40):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    """Print everything."""
    catalog, coefficients = Catalog.load(site=None), load_startup()
    print_outcomes(catalog, coefficients)
    print_left_out(catalog, coefficients)
    print()
    print_speed(catalog, coefficients)
    return 0


if __name__ == "__main__":
    sys.exit(main())
