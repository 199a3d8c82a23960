"""The fit of start-up coefficients: intervals from few rows, by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.errors import ConfigError
from omnipilot_slurm.records import Interval
from omnipilot_slurm.resources import shipped_path
from omnipilot_slurm.startup_file import load_startup
from omnipilot_slurm.train.startup import fit, main, read_figures, widened

FIGURES = Path(__file__).parents[2] / "fixtures" / "startup_figures.yaml"
CATALOG = Catalog.load(site=None)
PRIOR = load_startup()


def facts(name):
    return CATALOG.model(name).facts


def row(figure_id):
    (found,) = (figure for figure in read_figures(FIGURES) if figure.id == figure_id)
    return found


def test_the_shipped_file_is_what_the_fit_prints(capsys):
    main(FIGURES)
    body = shipped_path("etc/startup.yaml").read_text().partition("schema: 1\n\n")[2]
    assert capsys.readouterr().out == body


def test_an_interval_is_the_median_and_the_range_widened_by_half_of_it():
    held = Interval(lo=0.0, mid=0.0, hi=100.0)
    found = widened([1.0, 2.0, 5.0], 0.1, held)
    assert found == Interval(lo=0.0, mid=2.0, hi=7.0)


def test_values_that_agree_are_still_an_interval():
    found = widened([2.0, 2.0, 2.0], 0.5, Interval(lo=0.0, mid=0.0, hi=0.0))
    assert found == Interval(lo=1.5, mid=2.0, hi=2.5)


def test_two_rows_only_widen_what_is_held():
    held = Interval(lo=0.5, mid=1.0, hi=4.0)
    assert widened([2.0, 3.0], 0.1, held) == Interval(lo=0.5, mid=2.5, hi=4.0)


def test_a_row_implies_the_weights_it_logged_over_those_computed():
    (one,) = [figure for figure in read_figures(FIGURES) if figure.id == "qwen3-next-80b-h100-tp4"]
    doubled = replace(one, weights_gib=2 * one.weights_gib, fits=("weights",))
    alone, _ = fit([replace(one, fits=("weights",))], facts, PRIOR)
    twice, counts = fit([doubled], facts, PRIOR)
    assert twice.weights_frac.mid == pytest.approx(2 * alone.weights_frac.mid)
    assert counts == {"weights_frac": 1}


@pytest.mark.parametrize(
    ("figure_id", "name"),
    [
        ("llama-3.1-8b-v0", "plain_weights_frac"),
        ("qwen2.5-7b-awq-v0", "weights_frac"),
        ("qwen3-next-80b-h100-tp4", "weights_frac"),
    ],
)
def test_dense_weights_in_16_bits_are_fitted_apart(figure_id, name):
    _, counts = fit([replace(row(figure_id), fits=("weights",))], facts, PRIOR)
    assert counts == {name: 1}


@pytest.mark.parametrize(
    ("figure_id", "name"),
    [
        ("llama-3.1-8b-v0", "v0.non_torch_gib"),
        ("qwen2.5-72b-awq-tp2-v0", "v0.non_torch_pcie_gib"),
        ("deepseek-coder-v2-lite-tp8-v0", "v0.non_torch_parallel_gib"),
    ],
)
def test_gpus_with_and_without_nvlink_are_fitted_apart(figure_id, name):
    _, counts = fit([replace(row(figure_id), fits=("non_torch",))], facts, PRIOR)
    assert counts == {name: 1}


def test_what_no_row_says_anything_of_is_kept():
    figure = replace(row("qwen3-next-80b-h100-tp4"), fits=("weights",))
    fitted, _ = fit([figure], facts, PRIOR)
    assert fitted.eras == PRIOR.eras


def test_a_row_of_an_unknown_part_is_refused(tmp_path):
    file = tmp_path / "figures.yaml"
    file.write_text(FIGURES.read_text().replace("fits: [weights", "fits: [wieghts", 1))
    with pytest.raises(ConfigError, match="wieghts"):
        read_figures(file)
