"""No secret of a job reaches the database, and nothing a decider keeps stops a row."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.store.redact import clean, clean_json, redact

SECRET = "Zq8vT2mN5xK1pL7w"


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve m --api-key {SECRET} --port 8000",
        f"vllm serve m --api-key={SECRET}",
        f"vllm serve m --api_key {SECRET}",
        f"vllm serve m --api-k '{SECRET}'",
        f'vllm serve m --API-KEY "{SECRET} {SECRET}" -tp 2',
        f"vllm serve m --api-key {SECRET} {SECRET}b --port 8000",
        f"vllm serve m --hf-token {SECRET}",
        f"sbatch --wrap 'vllm serve m --api-key {SECRET} --port 1'",
        f"CMD='HF_TOKEN={SECRET} vllm serve m'",
        f"srun --export=ALL,HF_TOKEN={SECRET} vllm serve m",
        f"HF_TOKEN={SECRET} vllm serve m",
        f"export HUGGING_FACE_HUB_TOKEN='{SECRET} x'",
        f"VLLM_API_KEY={SECRET}; vllm serve m",
        f"WANDB_API_KEY={SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"DB_PASSWORD={SECRET}",
        f"api_key={SECRET}",
        f"curl -H 'Authorization: Bearer {SECRET}'",
        f"pip install git+https://bob:{SECRET}@git.example/x",
        f"huggingface-cli login hf_{SECRET}",
        f"the key is sk-{SECRET}",
        f"nvapi-{SECRET}",
        f"github_pat_{SECRET}",
    ],
)
def test_a_secret_is_taken_out_of(text: str) -> None:
    assert SECRET not in redact(text)
    assert "[redacted]" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve meta-llama/Llama-3.1-8B -tp 2 --max-num-batched-tokens 8192",
        "vllm serve m --tokenizer t --api-server-count 2 --port 8000",
        "MAX_TOKENS=512 python serve.py",
        "weights 141.1 GiB > 39.4 GiB; use --gres=gpu:h100:2",
        "/scratch/task-hf/monkey",
        "https://wiki.example/omnipilot",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_what_stands_around_a_secret_stays() -> None:
    text = f"HF_TOKEN={SECRET} vllm serve m --api-key {SECRET} --port 8000 && echo done"
    assert redact(text) == (
        "HF_TOKEN=[redacted] vllm serve m --api-key [redacted] --port 8000 && echo done"
    )


def test_secrets_are_taken_out_of_command_lines_and_mappings() -> None:
    record = {
        "argv": ["vllm", "--api-key", SECRET, SECRET + "b", "--port", "8000"],
        "env": {"HF_TOKEN": SECRET, "SLURM_GPUS": "2"},
        "api_key": [SECRET],
        "max_tokens": 512,
        "tokenizer": "auto",
        "HUGGING_FACE_HUB_TOKEN": SECRET,
        SECRET: {"deep": [("x", f"--api-key={SECRET}")]},
    }
    cleaned = clean({"record": record | {"key": None}})
    assert cleaned["record"]["argv"] == [
        "vllm",
        "--api-key",
        "[redacted]",
        "[redacted]",
        "--port",
        "8000",
    ]
    assert cleaned["record"]["env"] == {"HF_TOKEN": "[redacted]", "SLURM_GPUS": "2"}
    assert cleaned["record"]["api_key"] == "[redacted]"
    assert cleaned["record"]["max_tokens"] == 512
    assert cleaned["record"]["tokenizer"] == "auto"
    assert cleaned["record"]["HUGGING_FACE_HUB_TOKEN"] == "[redacted]"
    assert cleaned["record"]["key"] is None
    assert cleaned["record"][SECRET] == {"deep": [["x", "--api-key [redacted]"]]}


@pytest.mark.parametrize(
    "word",
    ["KEY", "--", "--api-key", "a_KEY_", "hf_", "://a:", "--a '", "sk-", "A=", '"', "_token"],
)
def test_a_text_made_to_be_slow_is_not(word: str) -> None:
    """In processor time, far above what is needed and far below what the square would take."""
    began = time.process_time()
    redact(word * (200_000 // len(word)))
    assert time.process_time() - began < 5


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        (Colour.RED, "red"),
        (float("nan"), None),
        (float("inf"), None),
        (b"-tp \xff", "-tp \\xff"),
        (PurePath("/a"), "/a"),
        ({3: {1}}, {"3": [1]}),
        ("\udcff", "\\udcff"),
        ((True, None, 2.5), [True, None, 2.5]),
    ],
)
def test_what_json_has_no_word_for_becomes_one_it_has(value: object, cleaned: object) -> None:
    assert clean(value) == cleaned


def test_a_value_without_end_is_cut() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert json.dumps(clean(endless)).count("[") < 30


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(ANYTHING)
def test_whatever_comes_is_json_that_a_database_takes(value: object) -> None:
    json.dumps(clean(value), allow_nan=False).encode()


@given(ANYTHING)
def test_as_json_text_it_is_read_back_and_encoded(value: object) -> None:
    json.loads(clean_json(value)).__repr__().encode()


PIECES = st.sampled_from(
    ["--api-key", "--hf_token", "HF_TOKEN=", "api_key=", "MYKEY=", "sk-", "hf_", "://", ":", "@"]
) | st.sampled_from(
    [SECRET, " ", "\n", "'", '"', "x", "Bearer ", "tokens", "TOKENS=", "--api-k=", "password", "é"]
)
SECRETIVE = st.lists(PIECES, max_size=8).map("".join)


@given(
    st.dictionaries(SECRETIVE, SECRETIVE | st.lists(SECRETIVE, max_size=4), max_size=3)
    | st.lists(SECRETIVE, max_size=5)
)
def test_the_quick_look_misses_no_secret(value: object) -> None:
    assert json.loads(clean_json(value)) == json.loads(json.dumps(clean(value)))


@given(st.text(alphabet="abc -=_'\"KEYtokn:/@.", max_size=60))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)
