"""What was worked out once is used again only where it would come out the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from site_for_tests import Rates, priced, script, site, submit

from omnipilot_slurm.decide.as_json import as_json
from omnipilot_slurm.decide.decision import decide

if TYPE_CHECKING:
    from collections.abc import Hashable

    from omnipilot_slurm.decide.remembering import Rated
    from omnipilot_slurm.decide.site import Site

GPUS = ("a100-40g", "a100-80g", "h100", "h200")
SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"


class Counted(dict[object, Any]):
    """Remembers everything and counts what it could use again."""

    n_used = 0

    def get(self, key: Hashable, default: Rated | None = None, /) -> Rated | None:
        found: Rated | None = super().get(key, default)
        self.n_used += found is not None
        return found

    def put(self, key: Hashable, kept: Rated, /) -> None:
        self[key] = kept


def remembering_site() -> tuple[Site, Counted]:
    rates = {(gpu, n): 1000.0 * n for gpu in GPUS for n in (1, 2, 4, 8)} | {("h200", 1): 4000.0}
    counted = Counted()
    where = priced(replace(site(), predictor=Rates(rates)), dict.fromkeys(GPUS, 3.0))
    return replace(where, remembered=counted), counted


def answered(where: Site, text: str, **fields: Any) -> dict[str, object]:
    return as_json(decide(submit(text, **fields), where, expired=lambda: False))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (script("gpu:h100:1", f"{SERVE} --port 9000"), {}),
        (script("gpu:h100:1", "# another remark", SERVE), {"name": "other"}),
        (script("gpu:h100:1", SERVE), {"environment": {"HF_HOME": "/scratch"}}),
    ],
)
def test_another_text_of_the_same_server_is_not_worked_out_again(text, fields) -> None:
    where, counted = remembering_site()
    first = answered(where, script("gpu:h100:1", SERVE))
    second = answered(where, text, **fields)
    assert counted.n_used == 1
    assert (second["arms"], second["gain"]) == (first["arms"], first["gain"])


VARIED = st.fixed_dictionaries(
    {},
    optional={
        "user_name": st.sampled_from(["alice", "bob"]),
        "account": st.sampled_from(["one", "two"]),
        "partition": st.sampled_from(["h100", "h200", "h100,h200"]),
        "time_limit_min": st.sampled_from([30, 480]),
        "cpus_per_task": st.sampled_from([1, 70, 100]),
        "min_mem_per_node_mib": st.sampled_from([1000, 1_000_000]),
        "features": st.sampled_from(["h100", "h200|h100"]),
        "groups": st.sampled_from([frozenset({"g"}), frozenset()]),
        "tres_per_node": st.sampled_from(["gpu:h100:1", "gpu:h100:2", "gpu:1"]),
    },
)
LINES = st.sampled_from(
    [
        SERVE,
        f"{SERVE} -tp 2",
        f"{SERVE} --port 1",
        f"{SERVE} --max-num-seqs 8",
        f"export CUDA_VISIBLE_DEVICES=0\n{SERVE}",
        f"#OMNIPILOT auto\n{SERVE}",
        f"#OMNIPILOT concurrency=4\n{SERVE}",
        f"#OMNIPILOT requests_per_s=0.1 hours=2\n{SERVE}",
        "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192",
    ]
)


@settings(max_examples=25)
@given(jobs=st.lists(st.tuples(LINES, VARIED), min_size=2, max_size=4))
def test_who_remembers_answers_as_who_does_not(jobs) -> None:
    where, _ = remembering_site()
    forgetful = replace(where, remembered=None)
    for line, fields in jobs:
        text = script("gpu:h100:1", line)
        assert answered(where, text, **fields) == answered(forgetful, text, **fields)
