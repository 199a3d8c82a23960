"""Scripts as people write them, beyond the acceptance cases: what is read, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from omnipilot_slurm.script import directives, serving, tres
from omnipilot_slurm.script.detected import detected

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:a100:4\n"


def read(body: str, *, args: tuple[str, ...] = (), head: str = HEAD, **env: str) -> dict[str, Any]:
    script = (head + body + "\n").encode()
    submission, form = directives.submission_of(script, args=args, environment=env)
    request = tres.request_of(submission, node_form=form)
    found = detected(serving.find(submission, request), script, request)
    edit = found["edit"]
    if edit is not None:
        start, end = edit["byte_start"], edit["byte_end"]
        found["at"] = script[:start].decode()[-12:] + "|" + script[end:].decode()[:12]
    return found


def expect(found: dict[str, Any], **wanted: Any) -> None:
    assert {key: found.get(key) for key in wanted} == wanted


SERVERS = {
    "serve with the model behind flags": (
        "vllm serve --port 8000 --tensor-parallel-size 2 Qwen/Qwen3-8B",
        {"model": "Qwen/Qwen3-8B", "tp": 2, "tp_source": "literal", "editable": "yes"},
    ),
    "model as a flag": (
        "vllm serve --model Qwen/Qwen3-8B -tp=2",
        {"model": "Qwen/Qwen3-8B", "tp": 2},
    ),
    "last flag wins": (
        "vllm serve M/x -tp 2 --max-model-len 4096 -tp 4",
        {"tp": 4, "max_model_len": 4096},
    ),
    "argparse prefix": ("vllm serve M/x --tensor-parallel 4", {"tp": 4, "tp_source": "literal"}),
    "underscores": ("vllm serve M/x --tensor_parallel_size=4", {"tp": 4}),
    "binary suffix": ("vllm serve M/x --max-model-len 32K", {"max_model_len": 32768}),
    "decimal suffix": ("vllm serve M/x --max_model_len 32k", {"max_model_len": 32000}),
    "served names are not the model": (
        "vllm serve M/x --served-model-name a b c --tensor-parallel-size 4",
        {"model": "M/x", "tp": 4},
    ),
    "absolute path of vllm": ("/opt/v/bin/vllm serve M/x -tp 4", {"model": "M/x", "tp": 4}),
    "python with options": (
        "python3.11 -u -m vllm.entrypoints.openai.api_server --model M/x --tensor-parallel-size 2",
        {"form": "openai.api_server", "model": "M/x", "tp": 2},
    ),
    "legacy server": (
        "python -m vllm.entrypoints.api_server --model M/x",
        {"form": "api_server", "model": "M/x", "tp": 1, "tp_source": "absent"},
    ),
    "nohup and redirects": (
        "nohup vllm serve M/x -tp 2 > out.log 2>&1 &\nwait",
        {"tp": 2, "editable": "yes"},
    ),
    "words behind a redirect": (
        "vllm serve M/x > log 2>&1 -tp 2 &",
        {"model": "M/x", "tp": 2, "editable": "yes"},
    ),
    "piped into tee": ("vllm serve M/x -tp 2 2>&1 | tee log", {"tp": 2, "editable": "yes"}),
    "subshell": ("( cd /x; vllm serve M/x -tp 2 ) &\nwait", {"tp": 2, "editable": "yes"}),
    "time and env": (
        "time env VLLM_USE_V1=1 HF_HOME=/x vllm serve M/x -tp 2",
        {"model": "M/x", "tp": 2},
    ),
    "timeout": ("timeout -k 5 3600 vllm serve M/x -tp 2", {"model": "M/x", "tp": 2}),
    "numactl": ("numactl --membind=0 -N 0 vllm serve M/x -tp 2", {"model": "M/x"}),
    "conda run with options": (
        "conda run --no-capture-output -n env vllm serve M/x -tp 2",
        {"model": "M/x", "tp": 2},
    ),
    "uv run with options": ("uv run --with vllm --python 3.12 vllm serve M/x", {"model": "M/x"}),
    "uvx": ("uvx vllm serve M/x --port 1", {"model": "M/x"}),
    "poetry run": ("poetry run python -m vllm.entrypoints.openai.api_server --model M/x", {}),
    "singularity with binds": (
        "singularity exec --nv -B /a:/b --env A=1,B=2 img.sif vllm serve M/x -tp 2",
        {"model": "M/x", "tp": 2, "form": "vllm serve"},
    ),
    "pyxis": (
        "srun --container-image=vllm/vllm-openai:v0.10.2 --container-mounts=/x:/x vllm serve M/x",
        {"model": "M/x", "form": "vllm serve"},
    ),
    "pyxis with the image apart": (
        "srun --container-image vllm/vllm-openai:v0.10.2 -n1 vllm serve M/x",
        {"model": "M/x", "form": "vllm serve", "editable": "yes"},
    ),
    "docker entrypoint": (
        (
            "docker run --rm --gpus all -v /d:/d -p 8000:8000 vllm/vllm-openai:latest"
            " --model M/x --tensor-parallel-size 2"
        ),
        {"form": "docker entrypoint", "model": "M/x", "tp": 2},
    ),
    "apptainer run": (
        "apptainer run --nv vllm-openai_latest.sif --model M/x -tp 2",
        {"form": "docker entrypoint", "model": "M/x", "tp": 2},
    ),
    "docker with its own command": (
        "docker run --gpus all --entrypoint vllm vllm/vllm-openai:v0.9.2 serve M/x -tp 2",
        {"form": "vllm serve", "model": "M/x", "tp": 2},
    ),
    "bash -lc with continuation": (
        "srun bash -lc 'set -e\nvllm serve M/x \\\n  -tp 2 \\\n  --port 1'",
        {"model": "M/x", "tp": 2, "editable": "yes"},
    ),
    "bash -c with outer variables": (
        'M=a/b\nTP=2\nbash -c "vllm serve $M -tp $TP"',
        {"model": "a/b", "tp": 2, "tp_source": "variable", "editable": "yes"},
    ),
    "argument array": (
        'ARGS=(serve M/x\n  --tensor-parallel-size 2  # two\n  --port 1)\nvllm "${ARGS[@]}"',
        {"model": "M/x", "tp": 2, "tp_source": "array", "editable": "yes"},
    ),
    "array that grows": (
        (
            "ARGS=(--model M/x)\nARGS+=(-tp 2)\n"
            'python -m vllm.entrypoints.openai.api_server "${ARGS[@]}"'
        ),
        {"model": "M/x", "tp": 2, "tp_source": "array", "editable": "yes"},
    ),
    "flags in a string": (
        'OPTS="--tensor-parallel-size 2 --port 1"\nvllm serve M/x $OPTS',
        {"model": "M/x", "tp": 2, "tp_source": "variable", "editable": "yes"},
    ),
    "command in a string": (
        'CMD="vllm serve M/x -tp 2"\n$CMD',
        {"model": "M/x", "tp": 2},
    ),
    "eval": (
        'CMD="vllm serve M/x -tp 2"\neval "$CMD"',
        {"is_serving": True, "model": "M/x", "tp": 2, "editable": "no", "edit": None},
    ),
    "string that grows": (
        'CMD="vllm serve M/x"\nCMD="$CMD --tensor-parallel-size 2"\nCMD+=" --port 1"\neval $CMD',
        {"model": "M/x", "tp": 2, "editable": "no"},
    ),
    "heredoc fed to a shell": (
        "srun bash <<'EOF'\nsource x\nvllm serve M/x -tp 2\nEOF",
        {"model": "M/x", "tp": 2},
    ),
    "script written and run": (
        "cat > run.sh <<'EOF'\nvllm serve M/x -tp 2\nEOF\nbash run.sh",
        {"model": "M/x", "tp": 2, "editable": "no"},
    ),
    "function without parameters": (
        "start() {\n  vllm serve M/x -tp 2 &\n}\nstart\nwait",
        {"model": "M/x", "tp": 2, "editable": "yes"},
    ),
    "function with parameters": (
        'start() { vllm serve "$1" -tp $2; }\nstart M/x 2',
        {"model": "M/x", "tp": 2, "tp_source": "function_arg", "editable": "no"},
    ),
    "branch": (
        "if [ -d /x ]; then\n  vllm serve M/x -tp 2\nfi",
        {"is_serving": True, "tp": 2, "editable": "no"},
    ),
    "loop that restarts": (
        "while true; do\n  vllm serve M/x -tp 2\n  sleep 5\ndone",
        {"is_serving": True, "tp": 2, "editable": "no"},
    ),
    "slurm variable": (
        "vllm serve M/x -tp ${SLURM_GPUS_ON_NODE}",
        {"tp": 4, "tp_source": "slurm_env", "editable": "yes", "edit": None},
    ),
    "slurm variable with default": (
        "vllm serve M/x -tp ${SLURM_GPUS_ON_NODE:-1}",
        {"tp": 4, "tp_source": "slurm_env", "editable": "yes"},
    ),
    "slurm variable through another": (
        "N=$SLURM_GPUS_ON_NODE\nvllm serve M/x --tensor-parallel-size=$N",
        {"tp": 4, "tp_source": "slurm_env"},
    ),
    "counted devices": (
        "N=$(nvidia-smi -L | wc -l)\nvllm serve M/x -tp $N",
        {"tp": 4, "is_serving": True},
    ),
    "computed": (
        "vllm serve M/x -tp $((SLURM_GPUS_ON_NODE / 2)) -dp 2",
        {"tp": 2, "tp_source": "computed", "dp": 2, "editable": "yes", "edit": None},
    ),
    "value that a branch decides": (
        "TP=2\nif [ -d /big ]; then TP=4; fi\nvllm serve M/x -tp $TP",
        {"tp": None, "tp_source": "unknown", "editable": "no"},
    ),
    "export before": (
        "export MODEL=M/x TP=2\nvllm serve $MODEL -tp $TP",
        {"model": "M/x", "tp": 2, "tp_source": "variable", "editable": "yes"},
    ),
    "assignments on one line before a command": (
        "MODEL=M/x TP=2\nvllm serve $MODEL -tp $TP",
        {"model": "M/x", "tp": 2, "editable": "yes"},
    ),
    "assigned by expansion": (
        ': "${TP:=2}"\nvllm serve M/x -tp $TP',
        {"tp": 2, "tp_source": "default_expansion", "editable": "conditional"},
    ),
    "single quotes": (
        "vllm serve 'M/x' '--tensor-parallel-size' '2'",
        {"model": "M/x", "tp": 2, "editable": "yes"},
    ),
    "behind cd": ("cd /x && vllm serve M/x -tp 2 || exit 1", {"tp": 2, "editable": "yes"}),
    "devices pinned": (
        "export CUDA_VISIBLE_DEVICES=0,1\nvllm serve M/x -tp 2",
        {"tp": 2, "editable": "no"},
    ),
    "config file beside flags": (
        "vllm serve --config a.yaml -tp 2",
        {"model": None, "tp": 2, "editable": "no"},
    ),
    "client beside": (
        "vllm serve M/x -tp 2 &\nvllm bench serve --model M/x --tensor-parallel-size 8\nkill %1",
        {"n_servers": 1, "model": "M/x", "tp": 2, "editable": "yes"},
    ),
    "training beside": (
        "vllm serve M/x -tp 2 &\ntorchrun --nproc_per_node 2 train.py",
        {"tp": 2, "editable": "no"},
    ),
    "arguments of the script": (
        'vllm serve "$1" --tensor-parallel-size 2 "${@:2}"',
        {"is_serving": True, "tp": 2, "editable": "no"},
    ),
    "json argument": (
        'vllm serve M/x -tp 2 --speculative-config \'{"model": "d", "num_speculative_tokens": 3}\'',
        {"model": "M/x", "tp": 2},
    ),
    "the wrapped job of sbatch": (
        "# This script was created by sbatch --wrap.\n\nvllm serve M/x -tp 2",
        {"model": "M/x", "tp": 2, "editable": "yes"},
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_server_is_read(name: str) -> None:
    body, wanted = SERVERS[name]
    expect(
        read(body),
        is_serving=True,
        kind="server",
        **{k: v for k, v in wanted.items() if k != "is_serving"},
    )


NOT_SERVERS = {
    "bench throughput": ("vllm bench throughput --model M/x -tp 2", "bench", False),
    "bench serve": ("vllm bench serve --model M/x --base-url http://n:8000", "client", False),
    "chat": ("vllm chat --url http://n:8000/v1", "client", False),
    "lm_eval": (
        "lm_eval --model vllm --model_args pretrained=M/x,tensor_parallel_size=2 --tasks gsm8k",
        "offline",
        False,
    ),
    "rl server": ("trl vllm-serve --model M/x --tensor_parallel_size 2", "training", False),
    "ollama": ("# not vllm\nollama serve", "other_server", False),
    "tgi": ("apptainer run tgi.sif text-generation-launcher --model-id M/x # vllm", None, False),
    "pip": ("pip install vllm==0.9.2\npython -m pip install -U vllm", "none", False),
    "which": ("which vllm || echo no vllm serve", "none", False),
    "version": ("vllm --version\npython -c 'import vllm; print(vllm.__version__)'", "none", False),
    "heredoc job": (
        "cat <<EOF | sbatch\n#!/bin/bash\n#SBATCH -G 1\nvllm serve M/x\nEOF",
        "generator",
        False,
    ),
    "sbatch wrap": ("sbatch --gres=gpu:1 --wrap 'vllm serve M/x'", "generator", False),
    "function never called": ("f() { vllm serve M/x; }\necho vllm", "none", False),
    "comment behind a command": ("python train.py # then vllm serve M/x", "none", False),
    "here document as a note": ("cat <<EOF\nrun vllm serve M/x\nEOF", "none", False),
    "remote client": (
        "python run.py --model hosted_vllm/x --base_url https://api.example.org/v1",
        "client",
        False,
    ),
    "shell script": ("bash scripts/serve_vllm.sh", "opaque", None),
    "program of its own": ("srun ./run_vllm M/x", "opaque", None),
    "python named so": ("python start_vllm.py --model M/x -tp 2", "opaque", None),
    "python engine flag": ("python main.py --engine vllm", "opaque", None),
    "python without": ("python observe.py --in data # vllm", "none", False),
    "template": ("vllm serve {{ model }} -tp {{ tp }}", "opaque", None),
    "conflict": (
        "<<<<<<< HEAD\nvllm serve M/x\n=======\nvllm serve M/y\n>>>>>>> b",
        "opaque",
        None,
    ),
    "subprocess in python": (
        "python - <<'EOF'\nimport subprocess\nsubprocess.run(build_command('vllm serve'))\nEOF",
        "opaque",
        None,
    ),
}


@pytest.mark.parametrize("name", NOT_SERVERS)
def test_near_miss_stays_one(name: str) -> None:
    body, kind, is_serving = NOT_SERVERS[name]
    found = read(body)
    expect(found, is_serving=is_serving, editable="no", edit=None)
    if kind is not None:
        expect(found, kind=kind)
