"""A model is read back as it was written, and one that is not whole is refused with the reason."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnipilot_slurm.errors import ArtifactError
from omnipilot_slurm.predict import artifact
from omnipilot_slurm.predict.predictor import Predictor
from omnipilot_slurm.resources import shipped_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnipilot_slurm.predict.model import CostModel
    from omnipilot_slurm.train.dataset import Dataset

Arrays = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path, small_model: CostModel) -> Path:
    artifact.write(tmp_path / "model", small_model, {"made_with": {"numpy": np.__version__}})
    return tmp_path / "model"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small_model: CostModel) -> dict[str, bytes]:
    """The files of a model by name."""
    folder = tmp_path_factory.mktemp("whole")
    artifact.write(folder, small_model, {})
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def arrays_of(folder: Path) -> Arrays:
    with np.load(folder / artifact.ARRAYS) as stored:
        return {name: stored[name] for name in stored.files}


def resign(folder: Path, data: bytes) -> None:
    """Put other arrays there and let the card vouch for them."""
    (folder / artifact.ARRAYS).write_bytes(data)
    change_card(folder, lambda card: card | {"arrays_sha256": hashlib.sha256(data).hexdigest()})


def change_arrays(folder: Path, arrays: Arrays) -> None:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=True, **arrays)
    resign(folder, stream.getvalue())


def change_card(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    card = json.loads((folder / artifact.CARD).read_text())
    (folder / artifact.CARD).write_text(json.dumps(change(card)))


def refusal(folder: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        artifact.read(folder)
    assert caught.value.hint.endswith(
        "train one with `omnipilot train`, or reinstall the package for the shipped one"
    )
    return str(caught.value).replace(str(folder), "FOLDER")


def same(one: CostModel, other: CostModel, data: Dataset) -> bool:
    before, after = Predictor(one).predict(data.rows), Predictor(other).predict(data.rows)
    return before.support == after.support and all(
        np.array_equal(getattr(bounds, end), getattr(after.targets[name], end), equal_nan=True)
        for name, bounds in before.targets.items()
        for end in ("lo", "mid", "hi")
    )


def test_what_is_written_is_read_back(
    folder: Path, small_model: CostModel, measured_rows: Dataset
) -> None:
    model, card = artifact.read(folder)
    assert same(model, small_model, measured_rows)
    assert (model.envelope, model.offsets) == (small_model.envelope, small_model.offsets)
    assert model.coefficients == small_model.coefficients
    assert card["made_with"] == {"numpy": np.__version__}
    assert sorted(path.name for path in folder.iterdir()) == [artifact.CARD, artifact.ARRAYS]


def test_writing_twice_gives_the_same_bytes(folder: Path, small_model: CostModel) -> None:
    before = [path.read_bytes() for path in sorted(folder.iterdir())]
    artifact.write(folder, small_model, {"made_with": {"numpy": np.__version__}})
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == before


def test_an_infinite_offset_survives_the_card(folder: Path, small_model: CostModel) -> None:
    change_card(folder, lambda card: card | {"offsets": card["offsets"] | {"power_w": {"": None}}})
    assert artifact.read(folder)[0].offsets.by_target["power_w"] == {"": math.inf}


def test_the_shipped_model_reads() -> None:
    model, card = artifact.read(shipped_path("etc", "artifact"))
    assert card["data"]["n_rows"] > 3000
    assert len(model.envelope.seen["gpu"]) >= 10


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "FOLDER/card.json: cannot be read: No such file or directory"


@pytest.mark.parametrize("frac", [0.0, 0.3, 0.99])
def test_arrays_that_are_cut_off_are_refused(folder: Path, frac: float) -> None:
    data = (folder / artifact.ARRAYS).read_bytes()
    cut = data[: int(frac * len(data))]
    (folder / artifact.ARRAYS).write_bytes(cut)
    whole, found = (hashlib.sha256(each).hexdigest()[:12] for each in (data, cut))
    assert refusal(folder) == (
        f"FOLDER/model.npz: must be the file that card.json was written with (sha256 {whole}), "
        f"was {found}"
    )
    resign(folder, cut)
    assert refusal(folder).startswith("FOLDER/model.npz: must hold plain arrays: ")


def test_a_card_that_is_cut_off_is_refused(folder: Path) -> None:
    text = (folder / artifact.CARD).read_text()
    (folder / artifact.CARD).write_text(text[: len(text) // 2])
    assert refusal(folder).startswith("FOLDER/card.json: must be JSON: ")


def test_halves_of_two_fits_are_told_apart(folder: Path) -> None:
    (folder / artifact.ARRAYS).write_bytes(
        shipped_path("etc", "artifact", artifact.ARRAYS).read_bytes()
    )
    assert refusal(folder).startswith(
        "FOLDER/model.npz: must be the file that card.json was written with (sha256 "
    )


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_another_schema_is_refused(folder: Path, schema: object) -> None:
    change_card(folder, lambda card: card | {"schema": schema})
    assert refusal(folder) == f"FOLDER/card.json: schema must be 1, was {schema!r}"


def test_a_card_that_is_no_object_is_refused(folder: Path) -> None:
    change_card(folder, lambda card: [card])
    assert refusal(folder) == "FOLDER/card.json: schema must be 1, was None"


def test_a_file_with_pickled_objects_is_refused_unread(folder: Path) -> None:
    class Dangerous:
        def __reduce__(self) -> tuple[object, ...]:
            return (pytest.fail, ("it was unpickled",))

    objects = np.array([Dangerous()], dtype=object)
    change_arrays(folder, arrays_of(folder) | {"forest.value": objects})
    assert refusal(folder) == (
        "FOLDER/model.npz: must hold plain arrays: ValueError: "
        "Object arrays cannot be loaded when allow_pickle=False"
    )


def test_arrays_that_would_fill_the_memory_are_refused_unread(folder: Path) -> None:
    with zipfile.ZipFile(folder / artifact.ARRAYS, "a", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("more.npy", bytes(artifact.MAX_UNPACKED_BYTES))
    resign(folder, (folder / artifact.ARRAYS).read_bytes())
    assert "ValueError: would unpack to " in refusal(folder)


def test_an_array_that_claims_to_be_huge_is_refused(folder: Path) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    with zipfile.ZipFile(folder / artifact.ARRAYS, "a") as packed:
        packed.writestr("huge.npy", stream.getvalue())
    resign(folder, (folder / artifact.ARRAYS).read_bytes())
    assert refusal(folder).startswith("FOLDER/model.npz: must hold plain arrays: ")


def test_a_file_that_is_too_long_is_refused(folder: Path) -> None:
    with (folder / artifact.ARRAYS).open("ab") as stream:
        stream.truncate(artifact.MAX_BYTES + 1)
    assert refusal(folder) == (
        f"FOLDER/model.npz: must have at most {artifact.MAX_BYTES} bytes, has more"
    )


def nan_in(values: Any) -> Any:
    changed = values.copy()
    changed.flat[1] = np.nan
    return changed


def with_value(values: Any, value: object) -> Any:
    changed = values.copy()
    changed.flat[0] = value
    return changed


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        pytest.param(
            "forest.value", nan_in, "must be finite, has 1 numbers that are not", id="NaN leaf"
        ),
        pytest.param(
            "bands.threshold", nan_in, "must be finite, has 1 numbers that are not", id="NaN split"
        ),
        pytest.param(
            "kernel.means",
            lambda values: values + np.inf,
            "must be finite, has 4 numbers that are not",
            id="infinite mean",
        ),
        pytest.param(
            "forest.column",
            lambda values: values.astype(np.float32),
            "must be integers, was float32",
            id="columns with a fraction",
        ),
        pytest.param(
            "kernel.duals",
            lambda values: values.astype(np.str_),
            "must be numbers with a fraction, was <U32",
            id="texts for numbers",
        ),
        pytest.param(
            "kernel.anchors",
            lambda values: values.ravel(),
            "must have 2 dimensions, has 1",
            id="anchors in a row",
        ),
        pytest.param(
            "kernel.duals",
            lambda values: values[:, :3],
            "must have 4 targets, has 3",
            id="a target too few",
        ),
        pytest.param(
            "bands.offsets",
            lambda values: values[:-1],
            "must have 12 models, has 11",
            id="a model too few",
        ),
        pytest.param(
            "kernel.used",
            lambda values: with_value(values, 10_000),
            "must point at the ",
            id="a column that is not there",
        ),
        pytest.param(
            "kernel_shares",
            lambda values: with_value(values, 1.5),
            "must be from 0 to 1",
            id="a share of more than all",
        ),
        pytest.param(
            "forest.column",
            lambda values: with_value(values, -1),
            "must point at the ",
            id="a column before the first",
        ),
        pytest.param(
            "bands.roots",
            lambda values: with_value(values, 10**6),
            "must point at the ",
            id="a root that is not there",
        ),
        pytest.param(
            "forest.child",
            lambda values: values * 0,
            "must come behind its parent, or be a leaf's own",
            id="a walk in circles",
        ),
        pytest.param(
            "bands.starts",
            lambda values: values * 0,
            "must rise from 0 to below 72",
            id="models of no trees",
        ),
        pytest.param(
            "forest.common_levels",
            lambda values: values + 10**9,
            "must be from 0 to 1000",
            id="a walk without end",
        ),
    ],
)
def test_unsound_arrays_are_refused_by_name(
    folder: Path, name: str, change: Callable[[Any], Any], fault: str
) -> None:
    arrays = arrays_of(folder)
    change_arrays(folder, arrays | {name: change(arrays[name])})
    assert refusal(folder).startswith(f"FOLDER/model.npz: {name}: {fault}")


def test_a_missing_and_an_empty_array_are_refused_together(folder: Path) -> None:
    arrays = arrays_of(folder)
    del arrays["kernel.means"]
    change_arrays(folder, arrays | {"bands.roots": arrays["bands.roots"][:0]})
    assert refusal(folder) == (
        "FOLDER/model.npz: bands.roots: must have some trees, has none\n"
        "FOLDER/model.npz: kernel.means: is missing"
    )


def test_what_a_site_added_is_checked_alike(folder: Path) -> None:
    arrays = arrays_of(folder)
    site = {f"site.{name}": arrays[f"kernel.{name}"] for name in ("used", "origin", "scales")}
    change_arrays(folder, arrays | site | {"site.shares": arrays["kernel_shares"] + 2})
    assert refusal(folder) == (
        "FOLDER/model.npz: site.anchors: is missing\n"
        "FOLDER/model.npz: site.duals: is missing\n"
        "FOLDER/model.npz: site.means: is missing"
    )
    site |= {f"site.{name}": arrays[f"kernel.{name}"] for name in ("anchors", "duals", "means")}
    change_arrays(folder, arrays | site | {"site.shares": arrays["kernel_shares"] + 2})
    assert refusal(folder) == "FOLDER/model.npz: site.shares: must be from 0 to 1"


def put(card: Any, path: tuple[str, ...], value: object) -> Any:
    first, *rest = path
    return card | {first: put(card[first], tuple(rest), value) if rest else value}


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        pytest.param(
            ("columns",),
            ["a"],
            "ValueError: its columns are not those of this version",
            id="columns of another version",
        ),
        pytest.param(
            ("levels",),
            [0.05, 0.5, 0.95],
            "ValueError: its levels are not those of this version",
            id="other quantiles",
        ),
        pytest.param(
            ("coefficients", "math"),
            -1,
            "ValueError: must be a number > 0, was -1",
            id="a negative coefficient",
        ),
        pytest.param(
            ("offsets", "ttft_ms"),
            {"": "wide"},
            "ValueError: must be a finite number, was 'wide'",
            id="an offset in words",
        ),
        pytest.param(("offsets",), {}, "KeyError: 'output_tok_s'", id="no offsets"),
        pytest.param(
            ("known", "gpu"),
            "h100",
            "TypeError: must be a list of texts, was 'h100'",
            id="a text for a list",
        ),
        pytest.param(
            ("support", "values", "context"),
            {"": [3, 1]},
            "ValueError: must be numbers in rising order, was [3, 1]",
            id="values out of order",
        ),
        pytest.param(
            ("support", "hulls", "model", "layers"),
            [0, 10],
            "ValueError: must be a number > 0, was 0",
            id="a hull down to nothing",
        ),
    ],
)
def test_an_unsound_card_is_refused(
    folder: Path, path: tuple[str, ...], value: object, reason: str
) -> None:
    change_card(folder, lambda card: put(card, path, value))
    assert refusal(folder) == (
        f"FOLDER/card.json: must describe a cost model of schema 1: {reason}"
    )


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_card_with_a_number_that_is_none_is_refused(folder: Path, word: str) -> None:
    path = folder / artifact.CARD
    path.write_text(path.read_text().replace('"schema": 1', f'"schema": 1, "x": {word}'))
    assert refusal(folder) == (f"FOLDER/card.json: must be JSON: {word} is no number of a card")


def refused_or_predicts(folder: Path, data: Dataset) -> None:
    try:
        model, _ = artifact.read(folder)
    except ArtifactError:
        return
    # a number may be absurd and yet finite; what matters is that an answer comes
    with np.errstate(all="ignore"):
        Predictor(model).predict(data.rows[:3])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1))
def test_a_damaged_file_is_refused_or_predicts(
    tmp_path: Path,
    whole: dict[str, bytes],
    measured_rows: Dataset,
    damages: list[tuple[float, int]],
) -> None:
    damaged = bytearray(whole[artifact.ARRAYS])
    for place, bits in damages:
        damaged[int(place * len(damaged))] ^= bits
    (tmp_path / artifact.CARD).write_bytes(whole[artifact.CARD])
    resign(tmp_path, bytes(damaged))
    refused_or_predicts(tmp_path, measured_rows)


_leaf = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text()
_json = st.recursive(
    _leaf, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_card_with_anything_anywhere_is_refused_or_predicts(
    tmp_path: Path, whole: dict[str, bytes], measured_rows: Dataset, data: st.DataObject
) -> None:
    card = json.loads(whole[artifact.CARD])
    place: Any = card
    key: Any = data.draw(st.sampled_from(["known", "offsets", "support", "coefficients"]))
    while data.draw(st.booleans()) and isinstance(place[key], dict | list) and place[key]:
        place = place[key]
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
    place[key] = data.draw(_json)
    (tmp_path / artifact.ARRAYS).write_bytes(whole[artifact.ARRAYS])
    (tmp_path / artifact.CARD).write_text(json.dumps(card))
    refused_or_predicts(tmp_path, measured_rows)
