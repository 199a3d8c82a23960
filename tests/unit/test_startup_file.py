"""startup.yaml: what is shipped loads, what a site adds is read strictly."""

import pytest

from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.records import Interval
from omnipilot_slurm.startup_file import load_startup


def test_the_shipped_coefficients_are_intervals_in_rising_order():
    coefficients = load_startup()
    assert coefficients.weights_frac.lo < 1 < coefficients.weights_frac.hi
    assert list(coefficients.eras) == [
        "reserved",
        "v0",
        "absolute",
        "sorting",
        "triton",
        "fused",
        "second",
    ]


def test_a_site_changes_what_it_names_and_nothing_else(tmp_path):
    (tmp_path / "startup.yaml").write_text(
        "schema: 1\neras:\n  sorting:\n    non_torch_gib: [1, 2, 3]\n"
    )
    shipped, changed = load_startup(), load_startup([tmp_path])
    assert changed.eras["sorting"].non_torch_gib == Interval(lo=1, mid=2, hi=3)
    assert changed.eras["sorting"].graphs_gib == shipped.eras["sorting"].graphs_gib
    assert changed.eras["triton"] == shipped.eras["triton"]


def test_every_fault_of_a_sites_file_is_told_at_once(tmp_path):
    file = tmp_path / "startup.yaml"
    file.write_text(
        "schema: 1\nweights_frac: [1.1, 1.0, 1.2]\neras:\n  sorting:\n    graphs_gib: [0, 1]\n"
    )
    with pytest.raises(ConfigError) as raised:
        load_startup([tmp_path])
    assert str(raised.value) == (
        f"{file}:2:15: weights_frac: must be [lo, mid, hi] in rising order, was [1.1, 1.0, 1.2]\n"
        f"{file}:5:17: eras.sorting.graphs_gib: must be [lo, mid, hi] in rising order,"
        " was [0.0, 1.0]"
    )


def test_a_coefficient_that_does_not_exist_is_refused(tmp_path):
    (tmp_path / "startup.yaml").write_text("schema: 1\neras:\n  v1:\n    graphs_gib: [0, 1, 2]\n")
    with pytest.raises(ConfigError, match="v1"):
        load_startup([tmp_path])
