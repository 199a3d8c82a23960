"""The values that flow through one decision: values in, values out, nothing else.

Submission (what slurmctld tells) -> Launch (what the script starts) -> Workload (what it will be
asked) -> Arm (where it could run) -> Prediction (what it would deliver) -> Decision (the answer).
Field names are the names on the wire; times of requests are in ms, times of jobs in the unit named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Verdict(StrEnum):
    """What becomes of a submission."""

    PASS = "pass"  # noqa: S105 (a verdict, not a password)
    ADVISE = "advise"
    REWRITE = "rewrite"
    REJECT = "reject"
    ABSTAIN = "abstain"


class Starts(StrEnum):
    """Whether a server will come up."""

    STARTS = "starts"
    FAILS = "fails"
    UNSURE = "unsure"


class Mode(StrEnum):
    """How far a site lets us go, in rising order: log only, also speak, also act."""

    OBSERVE = "observe"
    ADVISE = "advise"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its bounds, lo <= mid <= hi."""

    lo: float
    mid: float
    hi: float

    def scaled(self, factor: float) -> Interval:
        """Return the interval times a factor >= 0."""
        return Interval(lo=self.lo * factor, mid=self.mid * factor, hi=self.hi * factor)

    def __add__(self, other: Interval) -> Interval:
        return Interval(lo=self.lo + other.lo, mid=self.mid + other.mid, hi=self.hi + other.hi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why: a stable code for programs, one sentence with the arithmetic for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One batch job as slurmctld shows it to a plugin; None is what the user did not set.

    `script` is raw bytes (any encoding), `args` what follows the script on sbatch's line,
    `environment` the variables that came with the request, `partitions` those that slurmctld
    says this user may use (None: not told).
    """

    script: bytes
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user_id: int | None = None
    user_name: str | None = None
    account: str | None = None
    qos: str | None = None
    groups: frozenset[str] | None = None
    partition: str | None = None
    partitions: frozenset[str] | None = None
    name: str | None = None
    tres_per_node: str | None = None
    tres_per_job: str | None = None
    tres_per_task: str | None = None
    tres_per_socket: str | None = None
    cpus_per_tres: str | None = None
    mem_per_tres: str | None = None
    ntasks_per_gpu: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    num_tasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    min_mem_per_node_mib: int | None = None
    min_mem_per_cpu_mib: int | None = None
    time_limit_min: int | None = None
    features: str | None = None
    reservation: str | None = None
    req_nodes: str | None = None
    exc_nodes: str | None = None
    array: str | None = None
    het_job_offset: int | None = None
    held: bool = False
    comment: str | None = None
    shared: int | None = None
    group_id: int | None = None
    default_account: str | None = None
    default_qos: str | None = None
    min_cpus: int | None = None
    pn_min_cpus: int | None = None
    ntasks_per_tres: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArgs:
    """What a vLLM server is told on its command line; None: not said, vLLM's default applies.

    Token counts are integers after vLLM's own suffix rules (32k = 32000, 32K = 32768);
    `max_model_len` -1 is `auto`. `unknown` holds the names of those of these fields whose value the
    script does not show, or that a word it does not show may override. `data_parallel_rank` is set
    where the command starts one rank of several, `data_parallel_local` the ranks on this node.
    `hf_overrides` is JSON (rope_scaling included), `optimization_level` -O of torch.compile;
    `config_file` is "" where its name is not shown. `v1` and `allow_long_context` are what the
    variables VLLM_USE_V1 and VLLM_ALLOW_LONG_MAX_MODEL_LEN say. `mm_limits` (by modality a
    count, or an object with `count` and sizes) and `mm_processor_kwargs` are JSON.
    """

    model: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    enforce_eager: bool = False
    chunked_prefill: bool | None = None
    executor: str | None = None
    n_nodes: int = 1
    block_size: int | None = None
    cpu_offload_gib: float = 0.0
    speculative: bool = False
    pooling: bool = False
    decode_context_parallel: int = 1
    prefill_context_parallel: int = 1
    data_parallel_local: int | None = None
    data_parallel_rank: int | None = None
    node_rank: int | None = None
    headless: bool = False
    speculative_model: str | None = None
    speculative_tokens: int | None = None
    lora: bool = False
    load_format: str = "auto"
    trust_remote_code: bool = False
    hf_overrides: str | None = None
    n_gpu_blocks: int | None = None
    prefix_caching: bool | None = None
    hybrid_kv_cache: bool | None = None
    attention_backend: str | None = None
    max_cudagraph_capture_size: int | None = None
    optimization_level: int | None = None
    config_file: str | None = None
    v1: bool | None = None
    allow_long_context: bool = False
    mm_limits: str | None = None
    mm_processor_kwargs: str | None = None
    mm_encoder_data_parallel: bool = False
    chunked_mm_input: bool = True
    skip_mm_profiling: bool = False
    language_model_only: bool = False
    vllm_version: str | None = None
    warnings: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()


class Editable(StrEnum):
    """Whether a launch may be changed; conditional: if named variables are unset at submission."""

    YES = "yes"
    NO = "no"
    CONDITIONAL = "conditional"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """An option of an srun on the launch line; the value stands at bytes [start, end) if at all."""

    name: str
    value: str | None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of a vLLM engine as a script writes it.

    `tp_source` says how the tensor-parallel degree is given; `tp_place` is where its value stands
    (or where the flag would be inserted: start == end), None where no edit of the script sets it.
    `conditions` names the variables that must not be set at submission. `steps` are the options of
    the srun in front, `environment` the VLLM_* and CUDA_* variables in force (None: not known),
    `version_hints` the texts that may name vLLM's version.
    """

    form: str
    engine: EngineArgs
    tp: int | None
    tp_source: str
    tp_place: Edit | None = None
    editable: Editable = Editable.NO
    why: str = ""
    conditions: frozenset[str] = frozenset()
    steps: tuple[StepRequest, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    version_hints: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a batch script does.

    `is_serving` None: it cannot be told. `engine_run` is the engine of an offline or bench script,
    which is read but never changed.
    """

    kind: str
    is_serving: bool | None
    launches: tuple[Launch, ...] = ()
    engine_run: Launch | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the server will be asked; `source` says where each figure came from.

    `plausible_concurrency` are the ends of what it may be as well, None where the user said it.
    `n_jobs` earlier jobs stand behind the figures that come from such.
    """

    isl: int
    osl: int
    concurrency: int
    requests_per_s: float | None = None
    slo_ttft_ms: float | None = None
    slo_tpot_ms: float | None = None
    hours: float | None = None
    source: Mapping[str, str] = field(default_factory=dict)
    plausible_concurrency: tuple[int, int] | None = None
    n_jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One place and shape a server could run in; `n_gpus` is the job's total."""

    partition: str | None
    gpu: str
    gres_type: str | None
    n_gpus: int
    n_nodes: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    precision: str = "bf16"
    kv_cache_dtype: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What an arm would deliver, by target name; a target that is not computed is absent.

    `calibrated` is False for a physics estimate. `tier` is in, low or out of support and `axes`
    names what is outside.
    """

    targets: Mapping[str, Interval]
    calibrated: bool
    tier: str | None = None
    axes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


#: stands for the decision's id in the messages of an Outcome
DECISION_ID = "{decision_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One replacement in a script: bytes [start, end) hold `old` and become `new`."""

    start: int
    end: int
    old: bytes
    new: bytes


class Shared(dict[str, object]):
    """A part of the records of many decisions; nobody changes it, and it is known by identity."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the shim is told to do with a submission, and what the store keeps of it.

    `fields`, `env` and `edits` are empty unless the verdict is a rewrite. DECISION_ID in a message
    becomes the decision's id, which only the daemon knows; where `tag` is True it makes the tag for
    AdminComment of it. `code` is the reason's stable code. `record`, or what it returns, is
    stored as JSON after the answer has left; `would_be` in it is the verdict of enforce mode.
    An outcome that is not `lasting`, since a model is being looked up, is not given again.
    """

    verdict: Verdict
    messages: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    tag: bool = False
    code: str | None = None
    record: Mapping[str, object] | Callable[[], Mapping[str, object]] = field(default_factory=dict)
    lasting: bool = True


#: the unit of each predicted target, by its name on the wire
TARGET_UNITS = {
    "output_tok_s": "tok/s",
    "total_tok_s": "tok/s",
    "req_s": "1/s",
    "ttft_ms": "ms",
    "tpot_ms": "ms",
    "e2e_ms": "ms",
    "cold_start_s": "s",
    "kv_usage_frac": "fraction",
    "power_w": "W",
    "energy_per_tok_j": "J/tok",
}
