"""Which launches may be edited, why the others may not, and at which bytes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from script_reading import HEAD, expect, read

SERVE = "vllm serve M/x -tp 2"

#: the place of the edit stands between the angle marks
PLACES = {
    "the value behind its option": "vllm serve M/x -tp «2»",
    "the value joined to its option": "vllm serve M/x --tensor-parallel-size=«2» -q",
    "a value of several digits": "vllm serve M/x -tp «16» -q",
    "a value in quotes": 'vllm serve M/x -tp "«2»" -q',
    "a value in single quotes": "vllm serve M/x -tp '«2»' -q",
    "option and value in quotes": 'vllm serve M/x "-tp=«2»" -q',
    "the last of two": "vllm serve M/x -tp 1 -q -tp «2»",
    "behind text that is not ASCII": "echo Grüße\nvllm serve M/ä -tp «2»",
    "on a line of its own": "vllm serve M/x \\\n  -tp \\\n  «2» \\\n  -q",
    "where the variable is set": "TP=«2»\nvllm serve M/x -tp $TP",
    "inside a string": 'O="-tp «2» -q"\nvllm serve M/x $O',
    "inside an array": 'A=(M/x -tp «2»)\nvllm serve "${A[@]}"',
    "inside a default": "vllm serve M/x -tp ${TP:-«2»}",
    "inside the default of a default": 'vllm serve M/x -tp "${TP:-"${N-«2»}"}"',
    "inside the string of bash -c": "bash -c 'vllm serve M/x -tp «2» -q'",
    "inside the default in a string": 'bash -c "vllm serve M/x -tp ${TP:-«2»}"',
    "behind a name with a blank": "vllm serve M/a\\ b -tp «2» -q",
    "inside a here-document": "bash <<'E'\nvllm serve M/x -tp «2»\nE",
    "behind the last word": "vllm serve M/x«»",
    "behind the last word in quotes": 'vllm serve "M/x"«»',
    "before the ampersand": "vllm serve M/x«» &\nwait",
    "before a redirect": "vllm serve M/x«» > log 2>&1 &\nwait",
    "behind words behind a redirect": "vllm serve M/x > log -q«»",
    "before a pipe": "vllm serve M/x«» 2>&1 | tee log",
    "before a comment": "vllm serve M/x«» # our model",
    "before or": "vllm serve M/x«» || exit 1",
    "before a semicolon": "vllm serve M/x«»; sleep 1",
    "before a bracket": "(vllm serve M/x«»)",
    "behind a continued line": "vllm serve M/x \\\n  -q«»\n",
    "before a continuation into nothing": "vllm serve M/x \\\n  -q«» \\\n\nwait",
    "before a continuation into a comment": "vllm serve M/x \\\n  -q«» \\\n# -z\nwait",
    "behind an array": 'A=(M/x -q)\nvllm serve "${A[@]}"«»',
    "behind a variable": "M=M/x\nvllm serve $M«»",
    "at the end of the string of bash -c": "bash -c 'vllm serve M/x«»'",
    "behind a substitution": "vllm serve M/x --seed $(date +%s)«»",
    "inside a function": "f() {\n  vllm serve M/x«»\n}\nf",
    "at the end of a here-document": "srun bash <<'E'\nvllm serve M/x«»\nE",
}


@pytest.mark.parametrize("name", PLACES)
def test_the_edit_stands(name: str) -> None:
    before, old, behind = re.split("[«»]", PLACES[name])
    found = read(before + old + behind)
    start = len((HEAD + before).encode())
    assert found["editable"] in ("yes", "conditional"), found
    assert found["edit"]["byte_start"] == start
    assert found["edit"]["byte_end"] == start + len(old)
    assert found["edit"]["old"] == old


#: scripts by the reason why their launch is left alone
REFUSED = {
    "the model cannot be told from the script": {
        "an unknown model": "vllm serve $(cat model) -tp 2",
        "no model": "vllm serve -tp 2",
        "a model that must be given": 'vllm serve "${1:?}" -tp 2',
        "xargs": "cat models | xargs -n1 vllm serve -tp 2",
        "models of an array": "M=(M/x M/y)\nvllm serve ${M[$SLURM_ARRAY_TASK_ID]} -tp 2",
    },
    "settings live in a file the plugin does not see": {
        "a file of options": "vllm serve M/x --config c.yaml -tp 2",
    },
    "several servers in one script": {
        "two servers": f"{SERVE} &\nvllm serve M/y &\nwait",
        "two ways to start": f"{SERVE} || {SERVE} --enforce-eager",
        "a function called twice": f"f() {{ {SERVE}; }}\nf &\nf &",
    },
    "the launch is inside a branch": {
        "a branch": f"if [ -d x ]; then {SERVE}; fi",
        "the right of and": f"[ -d x ] && {SERVE}",
        "a case": f"case $(hostname) in a) {SERVE};; esac",
    },
    "the launch is inside a loop": {
        "a loop": f"while true; do {SERVE}; done",
        "a loop over one": "for m in M/x; do vllm serve $m -tp 2; done",
        "a loop of numbers": f"for ((i=0;i<2;i++)); do {SERVE}; done",
        "a function called in a loop": f"f() {{ {SERVE}; }}\nfor i in 1 2; do f; done",
    },
    "the launch is inside a function with parameters": {
        "a function with parameters": 'f() { vllm serve M/x -tp 2 --port "$1"; }\nf 8000',
    },
    "the launch is repeated for every line of some input": {
        "xargs with a model": "cat l | xargs -I{} vllm serve M/x --port {} -tp 2",
        "parallel": "parallel vllm serve M/x -tp 2 --port ::: 1 2",
    },
    "some arguments are not in the script": {
        "words that are not seen": f"{SERVE} $(cat flags)",
        "arguments": f'{SERVE} "$@" $(cat f)',
    },
    "the launch is in a file that the script writes": {
        "a program in a file": f"cat > s.sh <<'E'\n{SERVE}\nE\nbash s.sh",
    },
    "the command is built as a string and evaluated": {
        "eval": f"eval {SERVE}",
        "another machine": f"ssh n1 '{SERVE}'",
    },
    "the line cannot be read for certain": {
        "an escaped blank alone": "vllm serve M/x -tp 2 \\  -q",
        "a blank behind the backslash": "vllm serve M/x -tp 2 \\ \n  --port 1",
        "text that does not parse": f"{SERVE} &\nif then fi )",
    },
    "srun may start several copies": {
        "ntasks of srun": f"srun -n 2 {SERVE}",
        "tasks that are not known": f"srun --ntasks=$N {SERVE}",
        "nodes of srun": f"srun -N2 {SERVE}",
        "tasks per node of srun": f"srun --ntasks-per-node=2 {SERVE}",
    },
    "devices are pinned in the script": {
        "devices": f"export CUDA_VISIBLE_DEVICES=0,1\n{SERVE}",
        "devices of one command": f"CUDA_VISIBLE_DEVICES=0,1 {SERVE}",
        "devices of AMD": f"HIP_VISIBLE_DEVICES=0,1 {SERVE}",
        "devices of ROCm": f"export ROCR_VISIBLE_DEVICES=0\n{SERVE}",
        "devices through env": f"env CUDA_VISIBLE_DEVICES=1 {SERVE}",
        "devices in a container": f"apptainer exec --nv --env CUDA_VISIBLE_DEVICES=0 i.sif {SERVE}",
        "devices for a container": f"export SINGULARITYENV_HIP_VISIBLE_DEVICES=0\n{SERVE}",
        "in docker": "docker run -e CUDA_VISIBLE_DEVICES=0 vllm/vllm-openai --model M/x -tp 2",
        "devices for docker": "docker run --gpus device=0 vllm/vllm-openai --model M/x -tp 2",
        "devices in a list": f"export CUDA_VISIBLE_DEVICES=(0 1)\n{SERVE}",
        "devices that are computed": f"export CUDA_VISIBLE_DEVICES=$(pick)\n{SERVE}",
        "devices without a server yet": f"CUDA_VISIBLE_DEVICES=1 python embed.py &\n{SERVE}",
    },
    "other work on the same GPUs (torchrun)": {
        "training beside": f"{SERVE} &\ntorchrun --nproc_per_node 2 t.py",
    },
    "other work on the same GPUs (another vLLM engine)": {
        "an engine beside": f"{SERVE} &\nvllm bench throughput --model M/x",
    },
    "other work on the same GPUs (ollama)": {
        "another server beside": f"ollama serve &\n{SERVE}",
    },
    "the tensor-parallel degree does not stand in the script": {
        "a calculation of the degree": "vllm serve M/x -tp $((1+1))",
    },
    "the tensor-parallel degree cannot be told from the script": {
        "a degree from a program": "vllm serve M/x -tp $(cat tp)",
    },
    "parts of the script cannot be parsed": {
        "a part that does not parse": f"{SERVE}\n)\necho b",
        "a branch that never ends": f"{SERVE}\nif true; then echo",
        "a bracket that never ends": f"{SERVE}\nfoo ( bar",
    },
}


@pytest.mark.parametrize(("why", "name"), [(why, name) for why in REFUSED for name in REFUSED[why]])
def test_left_alone(why: str, name: str) -> None:
    found = read(REFUSED[why][name])
    expect(found, {"is_serving": True, "editable": "no", "why": why, "edit": None})


ALLOWED = {
    "guards before": f"[ -d m ] || exit 1\nif ! which vllm; then exit 2; fi\n{SERVE}",
    "a loop that waits": f"{SERVE} &\nuntil curl -s localhost:8000/health; do sleep 5; done\nwait",
    "a client": f"{SERVE} &\npython client.py --base-url http://localhost:8000/v1",
    "a benchmark client": f"{SERVE} &\nvllm bench serve --model M/x --tensor-parallel-size 8",
    "a trap": f"trap 'kill $!' EXIT\n{SERVE} &\nwait",
    "a function that is not called": f"old() {{ vllm serve M/y; }}\n{SERVE}",
    "a function without parameters": f"start() {{\n {SERVE} &\n}}\nstart\nwait",
    "one task": f"srun -n 1 -N 1 --ntasks-per-node=1 {SERVE}",
    "devices of the job": f"export CUDA_VISIBLE_DEVICES=$SLURM_JOB_GPUS\n{SERVE}",
    "devices as they are": f'export CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES"\n{SERVE}',
    "no devices chosen": f"unset CUDA_VISIBLE_DEVICES\n{SERVE}",
    "all devices": f"export NVIDIA_VISIBLE_DEVICES=all\n{SERVE}",
    "devices passed on where there are some": (
        'if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then\n'
        '  export APPTAINERENV_CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES"\nfi\n'
        f"apptainer exec --nv i.sif {SERVE}"
    ),
    "the order of devices": f"export CUDA_DEVICE_ORDER=PCI_BUS_ID\n{SERVE}",
    "programs that look at GPUs": f"nvidia-smi\npython -c 'import torch; print(torch)'\n{SERVE}",
    "the server last": f"exec {SERVE}",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_does_not_stand_in_the_way(name: str) -> None:
    expect(read(ALLOWED[name]), {"is_serving": True, "tp": 2, "editable": "yes"})


JOBS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "two nodes": ("#SBATCH -N 2 -G 8", SERVE, {"why": "multi-node", "nodes": 2}),
    "a range of nodes": ("#SBATCH -N 2-4 -G 8", SERVE, {"why": "multi-node"}),
    "a heterogeneous job": (
        "#SBATCH -G 4\n#SBATCH hetjob\n#SBATCH -n 1",
        SERVE,
        {"why": "a heterogeneous job"},
    ),
    "several tasks": (
        "#SBATCH -G 4 -n 4",
        f"srun {SERVE}",
        {"why": "srun may start several copies"},
    ),
    "several tasks on the node": (
        "#SBATCH -G 4 --ntasks-per-node=4",
        f"srun {SERVE}",
        {"why": "srun may start several copies"},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_jobs_of_this_shape_are_left_alone(name: str) -> None:
    options, body, wanted = JOBS[name]
    found = read(body, head=f"#!/bin/bash\n{options}\n")
    expect(found, {"is_serving": True, "tp": 2, "editable": "no", **wanted})


@pytest.mark.parametrize("body", [SERVE, f"srun -n1 {SERVE}", f"srun --ntasks=1 {SERVE}"])
def test_several_tasks_are_no_copies_where_one_is_started(body: str) -> None:
    expect(read(body, head="#!/bin/bash\n#SBATCH -G 4 -n 4\n"), {"tp": 2, "editable": "yes"})


def test_several_servers_are_listed() -> None:
    found = read("vllm serve M/x --port 1 &\nvllm serve M/y --port 2 &\nwait")
    expect(found, {"n_servers": 2, "model": ["M/x", "M/y"], "tp": [1, 1], "edit": None})
