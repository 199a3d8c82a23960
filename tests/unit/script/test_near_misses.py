"""What looks like a server and is none stays one; what cannot be told stays unclear."""

from __future__ import annotations

import pytest
from script_reading import expect, read

NOT_SERVERS = {
    "bench throughput": ("vllm bench throughput --model M/x -tp 2", "bench"),
    "bench serve": ("vllm bench serve --model M/x --base-url http://n:8000", "client"),
    "old bench": ("python benchmarks/benchmark_throughput.py --model M/x # vllm", "bench"),
    "old client": ("python benchmarks/benchmark_serving.py --backend vllm", "client"),
    "chat": ("vllm chat --url http://n:8000/v1", "client"),
    "batch": ("vllm run-batch -i a -o b --model M/x", "offline"),
    "batch module": ("python -m vllm.entrypoints.openai.run_batch -i a --model M/x", "offline"),
    "lm_eval": ("lm_eval --model vllm --model_args pretrained=M/x --tasks t", "offline"),
    "lm_eval module": ("python -m lm_eval --model vllm --model_args pretrained=M/x", "offline"),
    "lm_eval in a folder": (
        "python /opt/lm-evaluation-harness/lm_eval --model vllm --model_args pretrained=M",
        "offline",
    ),
    "lm_eval client": ("lm_eval --model local-completions # of vllm", "client"),
    "lighteval": ('lighteval vllm "model_name=M/x" t', "offline"),
    "LLM in -c": ("python -c \"from vllm import LLM; LLM('M/x')\"", "offline"),
    "trl server": ("trl vllm-serve --model M/x --tensor_parallel_size 2", "training"),
    "trl module": ("python -m trl.scripts.vllm_serve --model M/x", "training"),
    "verl": ("python -m verl.trainer.main_ppo rollout.name=vllm", "training"),
    "verl with its defaults": ("python -m verl.trainer.main_ppo x=1 # vllm", "training"),
    "accelerate": ("accelerate launch grpo.py --use_vllm True", "training"),
    "swift": ("swift rlhf --use_vllm true", "training"),
    "torch.distributed": ("python -m torch.distributed.run train.py --vllm", "training"),
    "trl without": ("trl sft --model M # vllm", "none"),
    "load test": ("genai-perf profile -m m --backend vllm", "client"),
    "ollama": ("ollama serve # not vllm", "other_server"),
    "tgi": ("apptainer run tgi.sif text-generation-launcher --model-id M # vllm", "other_server"),
    "sglang": ("python -m sglang.launch_server --model-path M # vllm", "other_server"),
    "worker of fastchat": (
        "python $DIR/fastchat/serve/vllm_worker.py --controller http://n:1 --model-path M",
        "other_server",
    ),
    "sglang image": ("docker run lmsysorg/sglang:latest run it # vllm", "other_server"),
    "swift deploy": ("swift deploy --infer_backend vllm", "other_server"),
    "jobs of ray": ("ray job list # vllm", "none"),
    "an image without its name": ("docker run # vllm", "none"),
    "another image": ('apptainer run --nv other.sif "${@:1}" # vllm', "none"),
    "bare interpreter": ("python # vllm", "none"),
    "terminals": ("screen -ls\ntmux attach\nscript log # vllm", "none"),
    "nothing for each line": ("xargs\nparallel --jobs 2 # vllm", "none"),
    "pip": ("pip install vllm==0.9.2\npython -m pip install -U vllm", "none"),
    "uv in a folder": ("$HOME/.local/bin/uv pip install vllm", "none"),
    "make": ("make build-vllm-cuda -j8", "none"),
    "another name": (". ~/nvllm/blend.sh\nbash run.sh", "none"),
    "which": ("which vllm || echo no vllm serve", "none"),
    "help": ("vllm serve --help | head", "none"),
    "version": ("vllm --version\npython -c 'import vllm; print(vllm.__version__)'", "none"),
    "function never called": ("f() { vllm serve M/x; }\necho vllm", "none"),
    "comment behind a command": ("python train.py # then vllm serve M/x", "none"),
    "heredoc as a note": ("cat <<EOF\nrun vllm serve M/x\nEOF", "none"),
    "behind exit": ("echo done\nexit 0\nvllm serve M/x", "none"),
    "branch that cannot run": ("ENGINE=hf\nif [ $ENGINE = vllm ]; then vllm serve M; fi", "none"),
    "case that cannot run": ("E=hf\ncase $E in vllm) vllm serve M;; *) :;; esac", "none"),
    "loop without turns": ('for m in "$@"; do vllm serve $m; done', "none"),
    "while without turns": ("while [ $# -gt 0 ]; do vllm serve $1; shift; done", "none"),
    "heredoc job": (
        "cat <<EOF | sbatch\n#!/bin/bash\n#SBATCH -G 1\nvllm serve M\nEOF",
        "generator",
    ),
    "job from standard input": ("sbatch <<EOF\n#!/bin/bash\nvllm serve M\nEOF", "generator"),
    "job printed": ('printf "#!/bin/bash\\n#SBATCH -G1\\nvllm serve M" > j\nsbatch j', "generator"),
    "job from Python": ("python - <<'EOF'\nopen('j','w').write('#SBATCH vllm')\nEOF", "generator"),
    "job with placeholders": (
        "cat > t <<'EOF'\n#!/bin/bash\n#SBATCH -J {name}\nvllm serve {model}\nEOF\nsbatch t",
        "generator",
    ),
    "sbatch wrap": ("sbatch --gres=gpu:1 --wrap 'vllm serve M/x'", "generator"),
    "sbatch of a file": ("for m in a b; do sbatch serve_vllm.sbatch $m; done", "generator"),
    "remote client": ("python run.py --model hosted_vllm/x --base_url https://a.org/v1", "client"),
    "curl": ("curl http://node7:8000/v1/models # vllm", "client"),
    "curl elsewhere": ("curl -LsSf https://a.org/uv/install.sh | sh\nuv pip install vllm", "none"),
    "conda hook": ('eval "$(conda shell.bash hook)"\nconda activate vllm\npython x.py', "none"),
    "set-up script": ("bash setup_env.sh\npip install vllm", "none"),
    "download script": ("./download_model.sh # vllm", "none"),
    "health check": ("python healthcheck.py --url http://localhost:8000 # vllm", "client"),
    "image named so": ("singularity exec --nv vllm-0.8.sif python convert.py --in a", "none"),
    "python without": ("python observe.py --in data # vllm", "none"),
    "tool": ("python -m pytest tests/vllm_tests\nhuggingface-cli download vllm/x", "none"),
}

UNCLEAR = {
    "shell script": "bash scripts/serve_vllm.sh",
    "script of any name": "bash run_all.sh # vllm",
    "sourced launcher": "source start_vllm.sh",
    "function of a sourced file": "source common.sh\nstart_vllm_server M/x",
    "program of its own": "srun ./run_vllm M/x",
    "program on the path": 'vllm-launch --tensor-parallel-size 4 "$@"',
    "container with a script": "srun apptainer exec $SIF ./process.sh M # vllm",
    "text from a file": 'bash -c "$(cat vllm_serve.txt)"',
    "text in a variable": "bash -c $CMD # vllm",
    "text of a program": 'S=$(make_command)\nbash -c "$S" # vllm',
    "text that is read": 'read -r -d "" S <<E\nvllm serve M/x\nE\nbash -c "$S"',
    "image with words that are not seen": 'apptainer run vllm-openai.sif "$1" --port 1',
    "job of ray": "ray job submit --working-dir . -- python serve.py --vllm",
    "python with options": "python -X dev -u server.py --vllm",
    "make of a server": "make run-vllm-server",
    "python named so": "python start_vllm.py --model M/x -tp 2",
    "python engine flag": "python main.py --engine vllm",
    "python in a variable": "python $VLLM_ENTRY --model M/x",
    "python server for localhost": "python run_server.py --url http://localhost:1/v1 # vllm",
    "python over the engine": "python - <<'EOF'\nfrom vllm import AsyncLLMEngine\nEOF",
    "subprocess with what is not shown": (
        "python - <<'EOF'\nsubprocess.run(build('vllm serve'))\nEOF"
    ),
    "a task runner": "make serve # vllm",
    "an application server": "uvicorn vllm_api:app",
    "compose": "docker compose -f vllm.yml up",
    "steps in a file": "srun --multi-prog steps.conf # vllm",
    "a command that is not shown": "nohup $CMD & # vllm",
    "a step that is not shown": "srun $SRV # vllm",
    "wrappers without end": "nohup " * 40 + "vllm serve M/x",
    "jinja": "vllm serve {{ model }} -tp {{ tp }}",
    "placeholder": "vllm serve <your-model> --tensor-parallel-size 2",
    "conflict": "<<<<<<< HEAD\nvllm serve M/x\n=======\nvllm serve M/y\n>>>>>>> b",
}


@pytest.mark.parametrize("name", NOT_SERVERS)
def test_near_miss_stays_one(name: str) -> None:
    body, kind = NOT_SERVERS[name]
    expect(
        read(body),
        {"is_serving": False, "kind": kind, "n_servers": 0, "editable": "no", "edit": None},
    )


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_cannot_be_told_is_unclear(name: str) -> None:
    expect(
        read(UNCLEAR[name]),
        {"is_serving": None, "kind": "opaque", "n_servers": None, "editable": "no", "edit": None},
    )


def test_placeholders_in_the_own_directives_make_a_template() -> None:
    head = "#!/bin/bash\n\n# ours\n#SBATCH -J {name}\n"
    expect(read("vllm serve M/x", head=head), {"is_serving": None, "kind": "opaque"})


@pytest.mark.parametrize(
    "body",
    [
        'case "$1" in\nserve) vllm serve M/x -tp 2;;\n*) exit 1;;\nesac',
        'if [ "${1:-}" = serve ]; then vllm serve M/x -tp 2; fi',
    ],
)
def test_a_server_that_an_argument_asks_for_is_none_only_with_other_arguments(body: str) -> None:
    expect(read(body), {"is_serving": True, "model": "M/x", "tp": 2, "editable": "no"})
    expect(read(body, args=("serve",)), {"is_serving": True, "tp": 2, "editable": "no"})
    expect(read(body, args=("stop",)), {"is_serving": False, "kind": "none"})


@pytest.mark.parametrize(
    "body",
    ["bash run_all.sh\n./x\n$CMD", "srun ./observe.sh", "python observer.py", "# ./serve.sh\n./x"],
)
def test_a_program_that_is_not_seen_is_none_where_nothing_names_a_server(body: str) -> None:
    expect(read(body), {"is_serving": False, "kind": "none"})


@pytest.mark.parametrize(
    "body",
    ["srun ./bin/start_engine.sh M/x", "bash serve.sh", "python -u launch_server.py --port 1"],
)
def test_a_file_that_sounds_like_a_server_is_unclear_without_vllms_name(body: str) -> None:
    expect(read(body), {"is_serving": None, "kind": "opaque"})


@pytest.mark.parametrize("value", ["{{ gpus }}", "{% if a %}", "<%= gpus %>", "a100:{n_gpus}"])
def test_a_template_in_the_directives_is_unclear(value: str) -> None:
    found = read("vllm serve M/x", head=f"#!/bin/bash\n#SBATCH --gpus={value}\n")
    expect(found, {"is_serving": None, "kind": "opaque"})


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (
            "lm_eval --model vllm --model_args pretrained=M/x,tensor_parallel_size=2,dtype=half",
            {"form": "lm_eval", "model": "M/x", "tp": 2, "tp_source": "literal", "dtype": "half"},
        ),
        (
            "lighteval vllm model_name=M/x,tensor_parallel_size=$N t",
            {"form": None, "model": "M/x", "tp": None, "tp_source": "unknown"},
        ),
        ("lm_eval --model vllm --tasks t", {"form": None, "model": None}),
        (
            "vllm bench latency --model M/x -tp 2",
            {"form": "vllm bench", "model": "M/x", "tp": 2},
        ),
        ("vllm run-batch --model M/x -i a -o b", {"form": None, "model": "M/x", "tp": 1}),
        (
            (
                "cat > g.py <<'EOF'\nfrom vllm import LLM\nTP = 4\nLLM(model='M/x',"
                " tensor_parallel_size=TP, max_model_len=100)\nEOF\npython g.py"
            ),
            {"form": "LLM()", "model": "M/x", "tp": 4, "tp_source": "python", "max_model_len": 100},
        ),
        (
            "python -c \"from vllm import LLM; LLM('M/x', **more)\"",
            {"form": "LLM()", "model": "M/x", "tp": None, "tp_source": "python"},
        ),
        (
            "python - <<'EOF'\nfrom vllm import LLM\nLLM(model=M, dtype='half'\nEOF",
            {"form": "LLM()", "model": None, "tp": None},
        ),
    ],
)
def test_the_engine_of_an_offline_run_is_read(body: str, wanted: dict[str, object]) -> None:
    expect(read(body), {"is_serving": False, "editable": "no", **wanted})
