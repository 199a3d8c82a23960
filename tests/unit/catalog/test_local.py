"""Model folders: what is read from them, what is refused, and that nothing ever waits."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from omnipilot_slurm.catalog.facts_json import facts_from_json, facts_to_json
from omnipilot_slurm.catalog.folder_process import Failure
from omnipilot_slurm.catalog.folder_reader import MAX_CONFIG_BYTES
from omnipilot_slurm.catalog.folder_worker import answer
from omnipilot_slurm.catalog.local import FolderLookup, Pending, find_model
from omnipilot_slurm.catalog.lookup import Catalog
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.facts import ModelFacts, Quantization

if TYPE_CHECKING:
    from pathlib import Path

CATALOG = Catalog.load(site=None)
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
#: long enough for a worker to start on a busy machine; no test waits for it on purpose
PATIENCE_S = 60.0
#: a worker that takes a line and never answers, as one that reads from a dead mount does
DEAD_MOUNT = (sys.executable, "-c", "import sys, time; sys.stdin.readline(); time.sleep(600)")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    root = tmp_path / "models"
    root.mkdir(mode=0o755)
    return root


def folder(root: Path, name: str, config: object = CONFIG) -> Path:
    made = root / name
    made.mkdir(mode=0o755, parents=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (made / "config.json").write_text(text)
    (made / "config.json").chmod(0o644)
    return made


def read(path: Path | str, *roots: Path, public_only: bool = True):
    """Read a folder as the worker does, without the process."""
    request = {"path": str(path), "roots": [str(r) for r in roots], "public_only": public_only}
    found = json.loads(json.dumps(answer(request)))
    return facts_from_json(found["facts"]) if "facts" in found else Failure(found["failure"])


def reason(path: Path | str, *roots: Path) -> str:
    found = read(path, *roots)
    assert isinstance(found, Failure), found
    return found.reason


def test_a_folder_gives_the_facts_of_its_config(models):
    facts = read(folder(models, "mine"), models)
    assert isinstance(facts, ModelFacts)
    assert (facts.layers, facts.kv_heads, facts.max_model_len) == (28, 4, 32768)
    assert facts.source == f"{models}/mine/config.json"


def test_the_worker_process_reads_a_folder(models):
    lookup = FolderLookup(roots=[models], deadline_s=PATIENCE_S)
    path = str(folder(models, "mine"))
    assert lookup.lookup(path) == Pending(path)
    assert lookup.wait(path, PATIENCE_S) == read(path, models)
    lookup.close()


def test_an_hf_quant_config_beside_the_config_is_read(models):
    path = folder(models, "quantised")
    beside = path / "hf_quant_config.json"
    beside.write_text(json.dumps({"quantization": {"quant_algo": "FP8"}, "producer": {}}))
    beside.chmod(0o644)
    facts = read(path, models)
    assert isinstance(facts, ModelFacts)
    assert facts.quantization == Quantization(method="modelopt", bits=8, scheme="w8a8-fp8")


@pytest.mark.parametrize("revision", ["", "../../etc", ".hidden", "a/b"])
def test_a_hub_cache_that_names_no_revision_is_refused(models, revision):
    cache = hub_cache(models)
    (cache / "refs" / "main").write_text(revision)
    assert reason(cache, models) == f"{cache} names no revision in refs/main, was {revision!r}"


def test_facts_survive_the_pipe():
    for model_id in ("deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "google/gemma-3-4b-it"):
        facts = CATALOG.model(model_id).facts
        assert facts_from_json(json.loads(json.dumps(facts_to_json(facts)))) == facts


def test_the_size_of_the_weights_is_kept_and_must_agree(models):
    path = folder(models, "mine")
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 15231233024}, "weight_map": {}}))
    index.chmod(0o644)
    facts = read(path, models)
    assert isinstance(facts, ModelFacts)
    assert facts.extra["weight_bytes"] == 15231233024
    index.write_text(json.dumps({"metadata": {"total_size": 25231233024}, "weight_map": {}}))
    assert reason(path, models) == (
        f"{path}: config.json implies 7.62 billion parameters, the checkpoint has 12.62"
    )


def hub_cache(root: Path) -> Path:
    cache = root / "hub" / "models--Qwen--Qwen2.5-7B-Instruct"
    snapshot = cache / "snapshots" / "a09a35458c702b33eeacc393d103063234e8bc28"
    for made in (cache / "refs", cache / "blobs", snapshot):
        made.mkdir(parents=True)
    (cache / "refs" / "main").write_text(snapshot.name)
    blob = cache / "blobs" / ("ab" * 20)
    blob.write_text(json.dumps(CONFIG))
    (snapshot / "config.json").symlink_to(f"../../blobs/{blob.name}")
    for made in (root / "hub").rglob("*"):
        made.chmod(0o755 if made.is_dir() else 0o644)
    (root / "hub").chmod(0o755)
    return cache


def test_a_hub_cache_folder_and_its_snapshot_are_read_through_the_blobs(models):
    cache = hub_cache(models)
    for path in (cache, next((cache / "snapshots").iterdir())):
        facts = read(path, models)
        assert isinstance(facts, ModelFacts), facts
        assert facts.layers == 28


def test_a_blob_that_is_a_link_itself_is_refused(models, tmp_path):
    cache = hub_cache(models)
    blob = next((cache / "blobs").iterdir())
    blob.unlink()
    blob.symlink_to(folder(tmp_path, "elsewhere") / "config.json")
    assert reason(cache, models) == f"{cache} cannot be read: Too many levels of symbolic links"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "holds a config.json that is not JSON"),
        ("[1, 2]", "holds a config.json that is no JSON object"),
        ('{"a":' * 5000, "holds a config.json that is not JSON"),
        ('{"text_config":' * 200 + "{}" + "}" * 200, "which is not known here"),
        ("\x00\xff", "holds a config.json that is not JSON"),
        (" " * (MAX_CONFIG_BYTES + 1), "holds a config.json of more than 1048576 bytes"),
        (CONFIG | {"hidden_size": "wide"}, "hidden_size must be a whole number"),
        (CONFIG | {"hidden_size": 10**30}, "hidden_size must be a whole number"),
        (CONFIG | {"hidden_size": None}, "config.json has no hidden_size"),
        (CONFIG | {"num_attention_heads": -4}, "num_attention_heads must be a whole number"),
        (CONFIG | {"num_attention_heads": True}, "num_attention_heads must be a whole number"),
        (CONFIG | {"text_config": 3}, "text_config must be an object"),
        (CONFIG | {"rope_scaling": "yarn"}, "rope_scaling must be an object"),
        (CONFIG | {"quantization_config": {"quant_method": "magic"}}, "is not known"),
        (CONFIG | {"model_type": "martian"}, "which is not known here"),
        (CONFIG | {"architectures": "Qwen2"}, "architectures must be a list of words"),
        ({}, "which is not known here"),
    ],
)
def test_a_config_that_is_wrong_is_a_failure_that_says_so(models, config, said):
    path = folder(models, "bad", config)
    found = reason(path, models)
    assert found.startswith(str(path))
    assert said in found


def test_a_folder_without_a_config_says_so(models):
    assert reason(models / "absent", models) == (
        f"{models}/absent cannot be read: No such file or directory"
    )
    (models / "empty").mkdir(mode=0o755)
    assert reason(models / "empty", models) == f"{models}/empty has no config.json"


def test_nothing_outside_the_roots_is_read(models, tmp_path):
    outside = folder(tmp_path, "outside")
    assert reason(outside, models) == f"{outside} is outside the folders that may be read"
    climbing = f"{models}/../outside"
    assert reason(climbing, models) == f"{climbing} is outside the folders that may be read"
    beside = folder(tmp_path, "models-private")
    assert reason(beside, models) == f"{beside} is outside the folders that may be read"
    assert reason("mine", models) == "mine must be an absolute path"


def test_a_link_is_followed_only_while_it_stays_below_a_root(models, tmp_path):
    folder(models, "real")
    (models / "latest").symlink_to("real")
    assert isinstance(read(models / "latest", models), ModelFacts)
    (models / "away").symlink_to(folder(tmp_path, "outside"))
    assert reason(models / "away", models) == (
        f"{models}/away is outside the folders that may be read"
    )
    (models / "loop").symlink_to("loop")
    assert reason(models / "loop", models) == f"{models}/loop has more than 8 links on its way"


def test_a_config_that_is_a_link_is_refused(models, tmp_path):
    secret = folder(tmp_path, "secret") / "config.json"
    (models / "linked").mkdir(mode=0o755)
    (models / "linked" / "config.json").symlink_to(secret)
    assert reason(models / "linked", models) == (
        f"{models}/linked holds a config.json that is a link; name the folder of the file"
    )


def test_what_not_everybody_may_read_is_not_read_for_them(models):
    path = folder(models, "private")
    (path / "config.json").chmod(0o640)
    assert reason(path, models) == f"{path} is not readable by everybody"
    assert isinstance(read(path, models, public_only=False), ModelFacts)
    (path / "config.json").chmod(0o644)
    path.chmod(0o750)
    assert reason(path, models) == f"{path} is not readable by everybody"


def test_a_pipe_in_place_of_the_config_does_not_hang(models):
    path = models / "pipe"
    path.mkdir(mode=0o755)
    os.mkfifo(path / "config.json", 0o644)
    assert reason(path, models) == f"{path} holds a config.json that is not a regular file"


def test_a_directory_in_place_of_the_config_is_refused(models):
    path = models / "odd"
    (path / "config.json").mkdir(parents=True)
    assert reason(path, models).startswith(f"{path} ")


def test_the_call_never_waits_for_a_dead_mount(models):
    lookup = FolderLookup(roots=[models], deadline_s=0.2, command=DEAD_MOUNT)
    started = threading.active_count()
    found = [lookup.lookup(f"{models}/m{n}") for n in range(5)]
    assert all(isinstance(one, Pending) for one in found)
    assert threading.active_count() <= started + 1
    assert lookup.wait(f"{models}/m0", PATIENCE_S) == Failure(
        f"{models}/m0 did not answer within 0.2 s"
    )
    lookup.close()


def test_a_worker_that_dies_is_a_failure_and_the_next_folder_gets_another(models, tmp_path):
    count = tmp_path / "count"
    dying = f"open({str(count)!r}, 'a').write('x')"
    lookup = FolderLookup(roots=[models], command=(sys.executable, "-c", dying), deadline_s=30)
    for name in ("a", "b"):
        found = lookup.wait(f"{models}/{name}", PATIENCE_S)
        assert isinstance(found, Failure)
        assert found.reason.startswith(f"{models}/{name} ")
    lookup.close()
    assert count.read_text() == "xx"


def test_a_worker_that_cannot_be_run_is_a_failure(models):
    lookup = FolderLookup(roots=[models], command=("/nonexistent/python",))
    assert lookup.wait(f"{models}/a", PATIENCE_S) == Failure(
        f"{models}/a is not read: the reader cannot be run: No such file or directory"
    )
    lookup.close()


def test_answers_are_kept_for_their_time_and_the_oldest_make_room(models):
    now = [0.0]
    lookup = FolderLookup(
        roots=[models], ttl_s=10, failure_ttl_s=5, max_entries=2, clock=lambda: now[0]
    )
    path = str(folder(models, "mine"))
    first = lookup.wait(path, PATIENCE_S)
    assert isinstance(first, ModelFacts)
    assert lookup.lookup(path) is first
    now[0] = 10.0
    assert lookup.lookup(path) == Pending(path)
    assert isinstance(lookup.wait(path, PATIENCE_S), ModelFacts)
    for name in ("x", "y"):
        lookup.wait(f"{models}/{name}", PATIENCE_S)
    assert lookup.lookup(path) == Pending(path)
    lookup.close()


def test_without_roots_nothing_is_started():
    lookup = FolderLookup(roots=[])
    assert lookup.lookup("/models/x") == Failure(
        "/models/x is not read: no folder is allowed (catalog.model_roots)"
    )
    lookup.close()


def test_a_folders_own_config_comes_before_its_name(models):
    path = folder(models, "Llama-3.1-8B-Instruct")
    lookup = FolderLookup(roots=[models], deadline_s=PATIENCE_S)
    before = find_model(CATALOG, lookup, str(path))
    assert not isinstance(before, Pending)
    assert before.facts.family == "llama3"
    lookup.wait(str(path), PATIENCE_S)
    after = find_model(CATALOG, lookup, str(path))
    assert not isinstance(after, Pending)
    assert (after.how, after.facts.family) == ("folder", "qwen2")
    assert after.said == f"{path} is read from its config.json"
    lookup.close()


def test_a_folder_that_neither_its_name_nor_its_config_explains_says_both(models):
    lookup = FolderLookup(roots=[models], deadline_s=PATIENCE_S)
    path = f"{models}/ours"
    assert find_model(CATALOG, lookup, path) == Pending(path)
    lookup.wait(path, PATIENCE_S)
    with pytest.raises(CatalogError) as caught:
        find_model(CATALOG, lookup, path)
    assert str(caught.value) == (
        f"model {path!r} is not known; {path} cannot be read: No such file or directory"
    )
    lookup.close()


def test_a_burst_of_folders_is_bounded(models):
    lookup = FolderLookup(roots=[models], deadline_s=0.05, command=DEAD_MOUNT)
    found = [lookup.lookup(f"{models}/m{n}") for n in range(200)]
    full = Failure(f"{models}/m199 is not read: too many folders are being looked up")
    assert found[-1] == full
    lookup.close()
