"""Every way to start a server that was seen in real scripts is read, whatever stands in front."""

from __future__ import annotations

from typing import Any

import pytest
from script_reading import expect, read

SERVE = "vllm serve M/x -tp 2"
API = "openai.api_server"
ENTRY = "docker entrypoint"

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "model behind flags": ("vllm serve --port 8000 --tensor-parallel-size 2 M/x", {"tp": 2}),
    "model as a flag": ("vllm serve --model M/x -tp=2", {"tp": 2}),
    "absolute path": ("/opt/v/bin/vllm serve M/x -tp 2", {"tp": 2}),
    "path with a variable": ('"$VENV/bin/vllm" serve M/x -tp 2', {"tp": 2, "editable": "yes"}),
    "program in a variable": ("V=/opt/v/bin/vllm\n$V serve M/x -tp 2", {"tp": 2}),
    "program that is looked up": ("$(which vllm) serve M/x -tp 2", {"tp": 2, "editable": "yes"}),
    "program that is looked up before": (
        'V=$(command -v vllm 2>/dev/null)\n"$V" serve M/x -tp 2',
        {"tp": 2, "editable": "yes"},
    ),
    "interpreter that is looked up": (
        "P=$(which python3)\n$P -m vllm.entrypoints.openai.api_server --model M/x",
        {"form": API, "editable": "yes"},
    ),
    "program in an unset variable with a short option": ("$VLLM serve M/x -tp 2", {"tp": 2}),
    "program in an unset variable": ("$VLLM serve M/x --tensor-parallel-size 2", {"tp": 2}),
    "module": ("python3.11 -u -m vllm.entrypoints.openai.api_server --model M/x", {"form": API}),
    "module of an unset interpreter": (
        "$PYTHON -m vllm.entrypoints.openai.api_server --model M/x -tp 2",
        {"form": API, "tp": 2},
    ),
    "module of an interpreter in a folder": (
        '"$VENV/bin/python" -m vllm.entrypoints.openai.api_server --model M/x',
        {"form": API},
    ),
    "module in a variable": (
        'ENTRY="-m vllm.entrypoints.openai.api_server"\npython $ENTRY --model M/x -tp 2',
        {"form": API, "tp": 2},
    ),
    "module behind options": (
        "python -W ignore -m vllm.entrypoints.openai.api_server --model M/x -tp 2",
        {"form": API, "tp": 2},
    ),
    "file of the module": (
        "python /opt/vllm/vllm/entrypoints/openai/api_server.py --model M/x",
        {"form": API},
    ),
    "legacy server": (
        "python -m vllm.entrypoints.api_server --model M/x",
        {"form": "api_server", "tp": 1, "tp_source": "absent"},
    ),
    "command line module": ("python -m vllm.entrypoints.cli.main serve M/x -tp 2", {"tp": 2}),
    "nohup and redirects": (f"nohup {SERVE} > out.log 2>&1 &\nwait", {"editable": "yes"}),
    "words behind a redirect": ("vllm serve M/x > log 2>&1 -tp 2 &", {"tp": 2}),
    "piped": (f"{SERVE} 2>&1 | tee log", {"tp": 2, "editable": "yes"}),
    "subshell": (f"( cd /x; {SERVE} ) &\nwait", {"tp": 2, "editable": "yes"}),
    "group": (f"{{ {SERVE} & }}\nwait", {"tp": 2, "editable": "yes"}),
    "coproc": (f"coproc {SERVE}", {"tp": 2}),
    "negated": (f"! {SERVE}", {"tp": 2}),
    "condition of an if": (f"if {SERVE}; then :; fi", {"tp": 2, "editable": "yes"}),
    "behind cd": (f"cd /x && {SERVE} || exit 1", {"tp": 2, "editable": "yes"}),
    "in a substitution": (f"PID=$({SERVE} > log 2>&1 & echo $!)", {"tp": 2, "editable": "yes"}),
    "time and env": (f"time env VLLM_USE_V1=1 HF_HOME=/x {SERVE}", {"tp": 2}),
    "timeout": (f"timeout -k 5 3600 {SERVE}", {"tp": 2}),
    "timeout in a variable": (f"timeout $LIMIT {SERVE}", {"tp": 2}),
    "numactl": (f"numactl --membind=0 -N 0 -- {SERVE}", {"tp": 2}),
    "taskset": (f"taskset -c 0-7 {SERVE}", {"tp": 2}),
    "nice in nice": (f"nice -n 5 ionice -c 2 -n 0 {SERVE}", {"tp": 2}),
    "strange but legal": (f"sudo -u me stdbuf -oL setsid {SERVE}", {"tp": 2}),
    "conda run": (f"conda run --no-capture-output -n env {SERVE}", {"tp": 2}),
    "uv run": (f"uv run --with vllm --python 3.12 -- {SERVE}", {"tp": 2}),
    "uv tool run": (f"uv tool run {SERVE}", {"tp": 2}),
    "uvx": (f"uvx --from vllm {SERVE}", {"tp": 2}),
    "pixi run": (f"pixi run -e gpu {SERVE}", {"tp": 2}),
    "poetry run": ("poetry run python -m vllm.entrypoints.openai.api_server --model M/x", {}),
    "mpirun": (f"mpirun -np 1 {SERVE}", {"tp": 2}),
    "singularity": (f"singularity exec --nv -B /a:/b --env A=1,B=2 i.sif {SERVE}", {"tp": 2}),
    "image in an unset variable": (f"apptainer exec --nv $SIF {SERVE}", {"tp": 2}),
    "options in an unset variable": (f"apptainer exec $OPTS i.sif {SERVE}", {"tp": 2}),
    "an option whose value is blank": (
        f'W=""\nsingularity exec --nv --pwd $W i.sif {SERVE}',
        {"tp": 2},
    ),
    "instance": (f"apptainer instance start --nv i.sif s\napptainer exec instance://s {SERVE}", {}),
    "podman-hpc": (f'podman-hpc run --rm --gpu -v "$S:/x" -e "A=b c" img:1 {SERVE}', {"tp": 2}),
    "enroot": (f"enroot start --rw --mount /a:/b vllm {SERVE}", {"tp": 2}),
    "shifter in a variable": (
        f'S="shifter --image=vllm/vllm-openai:v0.8.3 "\nsrun -N1 -n1 $S {SERVE}',
        {"tp": 2, "editable": "yes"},
    ),
    "uenv": (f"uenv run prgenv/24:v1 --view=default -- {SERVE}", {"tp": 2}),
    "srun with options that are not known": (
        f'srun --nodelist="$HEAD" -w$NODE --export=ALL,A=$B --gres=gpu:$G {SERVE}',
        {"tp": 2, "editable": "yes"},
    ),
    "pyxis": (f"srun --container-image=vllm/vllm-openai:v0.10.2 -n1 {SERVE}", {"tp": 2}),
    "entrypoint of docker": (
        "docker run --rm --gpus all -v /d:/d -p 8000:8000 vllm/vllm-openai:latest --model M/x",
        {"form": ENTRY},
    ),
    "entrypoint in a substitution": (
        "ID=$(docker run -d --gpus all vllm/vllm-openai:v0.9.2 --model M/x -tp 2)",
        {"form": ENTRY, "tp": 2},
    ),
    "entrypoint of apptainer": ("apptainer run --nv v.sif --model M/x -tp 2", {"form": ENTRY}),
    "entrypoint of an unset image": (
        "apptainer run --nv $SIF M/x --tensor-parallel-size 2",
        {"form": ENTRY, "tp": 2},
    ),
    "entrypoint of an instance": (
        "apptainer instance run --nv vllm-openai.sif srv --model M/x -tp 2",
        {"form": ENTRY, "tp": 2},
    ),
    "entrypoint replaced": (
        "docker run --entrypoint vllm vllm/vllm-openai:v0.9.2 serve M/x -tp 2",
        {"form": "vllm serve", "tp": 2},
    ),
    "ray job": (f"ray job submit --no-wait -- {SERVE}", {"tp": 2}),
    "ray around every node": (
        f"srun ray symmetric-run --address h:1 --min-nodes 1 -- {SERVE}",
        {"tp": 2, "editable": "yes"},
    ),
    "ranks that only work for another": (
        f'if [ "$SLURM_NODEID" = 0 ]; then {SERVE}; else {SERVE} --headless; fi',
        {"tp": 2, "n_servers": 1, "editable": "no"},
    ),
    "bash -lc": ("srun bash -lc 'set -e\nvllm serve M/x \\\n  -tp 2 \\\n  --port 1'", {"tp": 2}),
    "bash -c with arguments": (
        "bash -c 'vllm serve \"$1\" -tp $2' _ M/x 2",
        {"tp": 2, "editable": "yes"},
    ),
    "bash with options": (f'bash $OPTIONS --norc -c -- "{SERVE}"', {"tp": 2}),
    "bash -s": (f"bash -s -- a b <<E\n{SERVE}\nE", {"tp": 2, "editable": "yes"}),
    "group with a heredoc": (f"{{ {SERVE}; }} > log <<E\nx\nE", {"tp": 2, "editable": "yes"}),
    "behind a loop over a heredoc": (
        f"while read x; do echo $x; done <<E\nx\nE\n{SERVE}",
        {"tp": 2, "editable": "yes"},
    ),
    "bash -c in bash -c": ("srun bash -c \"bash -c 'vllm serve M/x -tp 2'\"", {"tp": 2}),
    "heredoc for a shell": ("srun bash <<'EOF'\nsource x\nvllm serve M/x -tp 2\nEOF", {"tp": 2}),
    "heredoc with expansions": ("M=M/x\nbash <<EOF\nvllm serve $M \\\n -tp 2\nEOF", {"tp": 2}),
    "herestring for a shell": (f'bash <<< "{SERVE}"', {"tp": 2}),
    "echo for a shell": (f'echo "{SERVE}" | bash', {"tp": 2}),
    "ssh": (f'ssh node1 "{SERVE}"', {"tp": 2, "editable": "no"}),
    "ssh with a heredoc": ("ssh n bash -s <<'EOF'\nvllm serve M/x -tp 2\nEOF", {"editable": "no"}),
    "tmux": (f'tmux new-session -d -s v "{SERVE}"', {"tp": 2, "editable": "no"}),
    "screen": (f"screen -dmS v {SERVE}", {"tp": 2}),
    "script": (f'script -qc "{SERVE}" log', {"tp": 2}),
    "eval": (f'CMD="{SERVE}"\neval "$CMD"', {"tp": 2, "editable": "no", "edit": None}),
    "a string as the command": (f'CMD="{SERVE}"\n$CMD &', {"tp": 2, "editable": "yes"}),
    "a heredoc for bash -c": (
        f'S=$(cat <<E\ncd /x\n{SERVE}\nE\n)\nbash -c "$S"',
        {"tp": 2, "editable": "no"},
    ),
    "a string for bash -c": (f'CMD="{SERVE}"\nbash -c "$CMD"', {"tp": 2, "editable": "no"}),
    "arguments of set": (f'set -- {SERVE}\n"$@"', {"tp": 2, "editable": "yes"}),
    "array as the command": (f'C=({SERVE})\n"${{C[@]}}" &', {"tp": 2, "editable": "yes"}),
    "one of two programs": (
        (
            "if which vllm; then C=(vllm serve)\n"
            "else C=(python -m vllm.entrypoints.openai.api_server); fi\n"
            '"${C[@]}" --model M/x -tp 2'
        ),
        {"n_servers": 1, "tp": 2, "editable": "no"},
    ),
    "file written and run": (
        "cat > run.sh <<'EOF'\nvllm serve M/x -tp 2\nEOF\nchmod +x run.sh\n./run.sh",
        {"tp": 2, "editable": "no", "edit": None},
    ),
    "file written and run by a shell": (
        "tee run.sh <<'EOF'\nvllm serve M/x -tp 2\nEOF\nsrun apptainer exec v.sif bash run.sh",
        {"tp": 2, "editable": "no"},
    ),
    "function": (f"start() {{\n  {SERVE} &\n}}\nstart\nwait", {"tp": 2, "editable": "yes"}),
    "exported function": (f"go() {{ {SERVE}; }}\nexport -f go\nsrun -n1 bash -c go", {"tp": 2}),
    "function with parameters": (
        'start() { vllm serve "$1" -tp $2; }\nstart M/x 2',
        {"tp": 2, "tp_source": "function_arg", "editable": "no"},
    ),
    "subprocess in Python": (
        (
            "python - <<'EOF'\nimport subprocess\ncmd = ['vllm', 'serve', 'M/x', '-tp', str(2)]\n"
            "subprocess.Popen(cmd)\nEOF"
        ),
        {"tp": 2, "tp_source": "python", "editable": "no"},
    ),
    "module started by Python": (
        (
            "python - <<'EOF'\nimport subprocess, sys\nsubprocess.run([sys.executable, '-m',"
            " 'vllm.entrypoints.openai.api_server', '--model', 'M/x', *rest])\nEOF"
        ),
        {"form": API, "editable": "no"},
    ),
    "system in Python": (
        "python - <<'EOF'\nimport os\nos.system('vllm serve M/x -tp 2')\nEOF",
        {"tp": 2, "tp_source": "python", "editable": "no"},
    ),
    "first part of a heterogeneous step": (
        "srun -n1 vllm serve M/x : -n1 python client.py",
        {"tp": 1, "at": "lm serve M/x|| : -n1 pytho"},
    ),
    "job wrapped by sbatch": (
        "# This script was created by sbatch --wrap.\n\nvllm serve M/x -tp 2",
        {"editable": "yes"},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_form_is_read(name: str) -> None:
    body, wanted = FORMS[name]
    expect(read(body), {"is_serving": True, "kind": "server", "model": "M/x", **wanted})


@pytest.mark.parametrize(
    "body",
    ["xargs -I{} vllm serve {} -tp 2 < models", 'parallel -j1 "vllm serve {} -tp 2" ::: a b'],
)
def test_a_server_for_every_line_of_some_input_has_no_known_model(body: str) -> None:
    expect(read(body), {"is_serving": True, "model": None, "tp": 2, "editable": "no"})


def test_an_official_image_without_arguments_serves_a_model_that_is_not_told() -> None:
    found = read("docker run --gpus all vllm/vllm-openai:latest")
    expect(found, {"is_serving": True, "form": ENTRY, "model": None, "editable": "no"})


@pytest.mark.parametrize("shebang", ["#!/bin/zsh -l", "#! /bin/bash", "#!/usr/bin/env -S bash -l"])
def test_shells_are_known_by_their_shebang(shebang: str) -> None:
    assert read("vllm serve M/x", head=f"{shebang}\n")["is_serving"] is True


@pytest.mark.parametrize("shebang", ["#!/bin/csh", "#!/usr/bin/fish", "#!/usr/bin/perl"])
def test_other_languages_are_unclear_when_they_name_vllm(shebang: str) -> None:
    expect(read("vllm serve M/x", head=f"{shebang}\n"), {"is_serving": None, "kind": "opaque"})
    expect(read("echo hello", head=f"{shebang}\n"), {"is_serving": False, "kind": "none"})


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("from vllm import LLM\nLLM('M/x')", {"is_serving": False, "kind": "offline"}),
        ("import vllm.entrypoints.openai.api_server", {"is_serving": None, "kind": "opaque"}),
        ("print('vllm')", {"is_serving": False, "kind": "none"}),
    ],
)
def test_a_python_batch_script_is_read_as_python(body: str, wanted: dict[str, Any]) -> None:
    expect(read(body, head="#!/usr/bin/env python3\n"), wanted)
