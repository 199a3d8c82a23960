"""One list of columns for measured rows and live arms, always finite, in 32-bit precision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from feature_rows import BASE
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.predict.blend import centre
from omnipilot_slurm.predict.features import NUMERIC, ONE_HOT, Columns, engine_minor, features
from omnipilot_slurm.predict.live import ArmSetup
from omnipilot_slurm.predict.roofline import SHIPPED
from omnipilot_slurm.predict.rows import (
    NUMBERS,
    kv_elements,
    kv_format,
    live_row,
    live_table,
    peak_tflops,
    table,
    weight_bits,
    weight_format,
)
from omnipilot_slurm.records import Arm, Workload

if TYPE_CHECKING:
    from omnipilot_slurm.predict.rows import FeatureRow
    from omnipilot_slurm.train.dataset import Dataset

CATALOG = Catalog.load(site=None)
COLUMNS = Columns({"family": ("llama3", "qwen2"), "gpu": ("h100",), "precision": ("bf16", "fp8")})


def column(row: FeatureRow, name: str) -> float:
    matrix = features(table([row]), COLUMNS, SHIPPED).matrix
    return float(matrix[0, COLUMNS.names.index(name)])


def test_every_column_has_one_name_and_one_place(measured_rows: Dataset) -> None:
    columns = Columns.of(measured_rows.table)
    matrix = features(measured_rows.table, columns, SHIPPED).matrix
    assert matrix.shape == (len(measured_rows), len(columns.names))
    assert len(set(columns.names)) == len(columns.names)
    assert columns.names[: len(NUMERIC)] == NUMERIC


def test_every_number_is_finite_and_of_32_bit(measured_rows: Dataset) -> None:
    matrix = features(measured_rows.table, COLUMNS, SHIPPED).matrix
    assert np.isfinite(matrix).all()
    np.testing.assert_array_equal(matrix, matrix.astype(np.float32))


@given(
    st.fixed_dictionaries(
        {
            "params_b": st.floats(0.01, 5000),
            "isl": st.floats(1, 1e7),
            "osl": st.floats(1, 1e6),
            "concurrency": st.floats(1, 1e6),
            "mem_gib": st.floats(1, 1000),
            "link_gb_s": st.floats(1, 2000),
            "tensor_parallel": st.sampled_from([1.0, 2.0, 8.0, 64.0]),
            "data_parallel": st.sampled_from([1.0, 2.0, 16.0]),
            "n_experts": st.sampled_from([1.0, 8.0, 256.0]),
            "max_num_seqs": st.floats(1, 1e6),
        }
    )
)
def test_no_arm_has_a_column_that_is_not_a_number(changes: dict[str, float]) -> None:
    matrix = features(table([replace(BASE, **changes)]), COLUMNS, SHIPPED).matrix
    assert np.isfinite(matrix).all()


def test_a_label_has_one_column_and_an_unknown_one_none() -> None:
    known, unknown = BASE, replace(BASE, family="yi")
    assert [column(known, name) for name in ("family=llama3", "family=qwen2")] == [1, 0]
    assert [column(unknown, name) for name in ("family=llama3", "family=qwen2")] == [0, 0]
    assert ONE_HOT == ("family", "gpu", "precision")


def test_an_axis_has_its_column_before_rows_with_it_exist() -> None:
    assert column(replace(BASE, pipeline_parallel=2.0), "log_pipeline_parallel") == pytest.approx(
        np.log(2)
    )
    assert column(replace(BASE, mem_util=0.5), "mem_util") == 0.5
    assert column(replace(BASE, isl=20_000.0), "prefill_passes") == 3


@pytest.mark.parametrize(
    ("version", "minor", "known"),
    [("0.11.2", 11, 1), ("v0.9", 9, 1), ("0.19.0+site", 19, 1), ("", 0, 0), ("nightly-5b8", 0, 0)],
)
def test_a_version_is_its_minor_number_and_whether_it_is_known(
    version: str, minor: float, known: float
) -> None:
    row = replace(BASE, engine_version=version)
    assert (column(row, "engine_minor"), column(row, "engine_known")) == (minor, known)
    assert engine_minor(version) == (minor if known else -1)


def test_a_live_arm_and_a_measured_row_with_equal_facts_have_equal_features() -> None:
    catalog = CATALOG
    model, gpu = catalog.model("meta-llama/Llama-3.1-8B-Instruct").facts, catalog.gpu("h100")
    arm = Arm(partition="p", gpu="h100", gres_type="h100", n_gpus=1, precision="fp16")
    load = Workload(isl=1024, osl=256, concurrency=16)
    live = live_row(
        model, gpu, arm, load, max_num_seqs=256, max_num_batched_tokens=8192,
        engine_version="0.11.0",
    )  # fmt: skip
    facts = ("mem_gib", "bandwidth_gb_s", "link_gb_s", "tdp_w", "peak_tflops")
    measured = replace(
        BASE,
        family=live.family,
        params_b=model.params / 1e9,
        active_params_b=model.active_params / 1e9,
        **{name: getattr(live, name) for name in facts},
    )
    assert live == measured


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["h100", "b200", "mi300x", "a100-40g"]),
            st.sampled_from([1, 2, 8]),
            st.sampled_from(["bf16", "fp8", "fp16", "awq"]),
            st.integers(1, 512),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3"]),
)
def test_rows_of_all_arms_at_once_are_those_of_each_arm(
    arms: list[tuple[str, int, str, int]], name: str
) -> None:
    catalog, load = CATALOG, Workload(isl=1000, osl=200, concurrency=8)
    model = catalog.model(name).facts
    setups = [
        ArmSetup(
            Arm(partition="p", gpu=gpu, gres_type=gpu, n_gpus=degree, tensor_parallel=degree,
                precision=precision),
            catalog.gpu(gpu), seqs, 2048, 0.9,
        )
        for gpu, degree, precision, seqs in arms
    ]  # fmt: skip
    together = live_table(model, setups, load, engine_version="0.9.1")
    each = table([
        live_row(
            model, setup.gpu, setup.arm, load, max_num_seqs=setup.max_num_seqs,
            max_num_batched_tokens=2048, engine_version="0.9.1",
        )
        for setup in setups
    ])  # fmt: skip
    for number in NUMBERS:
        np.testing.assert_array_equal(together.numbers[number], each.numbers[number])
    for label, values in each.labels.items():
        assert together.labels[label].tolist() == values.tolist()


def test_a_latent_cache_counts_its_vector_and_a_state_layer_nothing() -> None:
    catalog = CATALOG
    deepseek = catalog.model("deepseek-ai/DeepSeek-V3").facts
    assert kv_elements(deepseek) == deepseek.layers * (512 + 64)
    llama = catalog.model("meta-llama/Llama-3.1-8B-Instruct").facts
    assert kv_elements(llama) == 2 * 32 * 8 * 128
    assert kv_elements(replace(llama, n_state_layers=8)) == 2 * 24 * 8 * 128


def test_formats_have_one_name_and_unknown_ones_count_as_16_bit() -> None:
    assert [weight_format(name) for name in ("fp16", "half", "fp4", "awq")] == [
        "bf16", "bf16", "nvfp4", "awq",
    ]  # fmt: skip
    assert (weight_bits("fp8"), weight_bits("made-up")) == (8.0, 16.0)
    assert (kv_format("fp8_e4m3"), kv_format("auto")) == ("fp8", "bf16")


def test_weights_multiply_at_the_rate_of_the_format_they_multiply_in() -> None:
    peaks = {"bf16": 989.0, "fp8": 1979.0}
    assert peak_tflops(peaks, "fp8") == 1979.0
    assert peak_tflops(peaks, "awq") == 989.0
    assert peak_tflops(peaks, "nvfp4") == 989.0
    assert peak_tflops({"fp16": 312.0}, "bf16") == 312.0
    assert peak_tflops({}, "bf16") == 1.0


@given(st.lists(st.integers(0, 400), max_size=30))
def test_rows_taken_from_a_table_are_those_rows(measured_rows: Dataset, chosen: list[int]) -> None:
    positions = [at % len(measured_rows) for at in chosen]
    taken = measured_rows.table.take(np.array(positions, dtype=np.int64))
    again = table([measured_rows.rows[at] for at in positions])
    assert len(taken) == len(positions)
    for name in NUMBERS:
        np.testing.assert_array_equal(taken.numbers[name], again.numbers[name])
    for name, labels in again.labels.items():
        assert taken.labels[name].tolist() == labels.tolist()


def test_the_blend_weighs_kernel_and_forest_and_says_how_far_they_are_apart() -> None:
    kernel, forest = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    density = np.array([[0.0, 1.0]])
    middle = centre(kernel, forest, density, np.array([0.75, 0.25]))
    np.testing.assert_allclose(middle.value, [[0.75, 0.75]])
    np.testing.assert_allclose(middle.gap, [[1.0, 1.0]])
    np.testing.assert_allclose(middle.log_density, np.log([[1e-6, 1 + 1e-6]]))
    beside = middle.beside(np.zeros((1, 2)))
    assert beside.shape == (1, 8)
    np.testing.assert_array_equal(beside, beside.astype(np.float32))
