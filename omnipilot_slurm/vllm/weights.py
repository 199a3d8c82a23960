"""How many parameters a model has, by the kind of layer that holds them.

In: ModelFacts. Out: ParameterCount. The split decides memory: attention, MLP, experts and mixers
are what a quantised checkpoint stores in few bits; embedding, head, norms, tower and the rest stay
16-bit. Called by the memory model, by `config check` and by the tool that compiles the catalog.

What the fields of ModelFacts do not say comes from `facts.extra`; every key is optional:

    mlp_matrices       matrices of an MLP or expert: 3 where it is gated (default), else 2
    n_mlp_layers       layers that have an MLP or experts at all (default: every layer)
    n_moe_layers       layers that have experts (default: by n_dense_layers and every_n_layers)
    expert_hidden      width that routed experts read, where it is not `hidden` (latent experts)
    attention_gate     1: the query projection is doubled by an output gate
    v_head_dim         width of a value head where it differs from head_dim
    sliding_kv_heads   KV heads of the sliding layers where they differ
    sliding_head_dim   head width of the sliding layers where it differs
    k_is_v             1: full-attention layers use their keys as values (no value projection)
    index_heads        heads of a sparse-attention indexer
    index_head_dim     width of one of them
    mixer_params       parameters of one state layer's mixer (Mamba, linear attention)
    n_mixer_layers     layers with a mixer (default: n_state_layers; more where it runs in parallel)
    other_params       all else: position or per-layer embeddings, an encoder, extra projections
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnipilot_slurm.facts import LatentAttention, ModelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters by kind; `mlp` holds dense layers and shared experts, `experts` the routed ones.

    `active` are those that one token goes through: the total less the experts it is not sent to.
    """

    embedding: float
    head: float
    attention: float
    mlp: float
    experts: float
    mixer: float
    norms: float
    tower: float
    other: float
    active: float

    @property
    def total(self) -> float:
        """All parameters."""
        return self.linear + self.unquantized

    @property
    def linear(self) -> float:
        """Those of linear layers inside the blocks: what a quantised checkpoint quantises."""
        return self.attention + self.mlp + self.experts + self.mixer

    @property
    def unquantized(self) -> float:
        """Those that stay 16-bit in most quantised checkpoints."""
        return self.embedding + self.head + self.norms + self.tower + self.other


def parameter_count(facts: ModelFacts) -> ParameterCount:
    """Return the parameters that the fields of a model imply; biases are left out (< 0.2 %)."""
    experts, router = _experts(facts)
    embedding = float(facts.vocab * facts.hidden)
    n_mixers = facts.extra.get("n_mixer_layers", facts.n_state_layers)
    count = ParameterCount(
        embedding=embedding,
        head=0.0 if facts.tied_embeddings else embedding,
        attention=_attention(facts),
        mlp=_mlp(facts),
        experts=experts,
        mixer=n_mixers * facts.extra.get("mixer_params", 0.0),
        norms=float((2 * facts.layers + 1) * facts.hidden),
        tower=facts.tower_params,
        other=router + facts.extra.get("other_params", 0.0),
        active=0.0,
    )
    return replace(count, active=count.total - _idle(experts, facts))


def _idle(experts: float, facts: ModelFacts) -> float:
    """Return the parameters of the experts that one token is not sent to."""
    if facts.experts is None:
        return 0.0
    return experts * (1 - facts.experts.n_active / facts.experts.n_experts)


def n_moe_layers(facts: ModelFacts) -> int:
    """Return how many layers hold routed experts."""
    if facts.experts is None:
        return 0
    default = (facts.layers - facts.experts.n_dense_layers) // facts.experts.every_n_layers
    return int(facts.extra.get("n_moe_layers", default))


def _attention(facts: ModelFacts) -> float:
    """Return the parameters of all attention layers; state layers have none."""
    n_full = facts.layers - facts.n_state_layers - facts.n_sliding_layers
    if facts.mla is not None:
        layer = _latent(facts, facts.mla)
        return (n_full + facts.n_sliding_layers) * (layer + _indexer(facts))
    extra = facts.extra
    full = _grouped(facts, facts.kv_heads, facts.head_dim, n_kv=1 if extra.get("k_is_v") else 2)
    sliding = _grouped(
        facts,
        extra.get("sliding_kv_heads", facts.kv_heads),
        extra.get("sliding_head_dim", facts.head_dim),
        n_kv=2,
    )
    return n_full * full + facts.n_sliding_layers * sliding


def _grouped(facts: ModelFacts, kv_heads: float, head_dim: float, *, n_kv: int) -> float:
    """Return one layer of (grouped) multi-head attention: Q, K, V and output projections."""
    v_head_dim = head_dim
    if head_dim == facts.head_dim:
        v_head_dim = facts.extra.get("v_head_dim", head_dim)
    query = facts.heads * head_dim * (1 + facts.extra.get("attention_gate", 0.0))
    keys_values = kv_heads * (head_dim + (n_kv - 1) * v_head_dim)
    return float(facts.hidden * (query + keys_values + facts.heads * v_head_dim))


def _latent(facts: ModelFacts, mla: LatentAttention) -> float:
    """Return one layer of multi-head latent attention (DeepSeek-V2, section 2.1)."""
    query_width = facts.heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    query = facts.hidden * query_width
    if mla.q_lora_rank is not None:
        query = mla.q_lora_rank * (facts.hidden + query_width)
    down = facts.hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    up = mla.kv_lora_rank * facts.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return float(query + down + up + facts.heads * mla.v_head_dim * facts.hidden)


def _indexer(facts: ModelFacts) -> float:
    """Return one layer's sparse-attention indexer (DeepSeek-V3.2)."""
    heads, width = (facts.extra.get(key, 0.0) for key in ("index_heads", "index_head_dim"))
    rank = facts.mla.q_lora_rank if facts.mla and facts.mla.q_lora_rank else facts.hidden
    return rank * heads * width + facts.hidden * (width + heads)


def _mlp(facts: ModelFacts) -> float:
    """Return the dense MLPs and the shared experts."""
    matrices = facts.extra.get("mlp_matrices", 3)
    n_moe = n_moe_layers(facts)
    n_dense = facts.extra.get("n_mlp_layers", facts.layers) - n_moe
    shared = 0 if facts.experts is None else facts.experts.shared_intermediate
    return float(matrices * facts.hidden * (n_dense * facts.intermediate + n_moe * shared))


def _experts(facts: ModelFacts) -> tuple[float, float]:
    """Return the routed experts and what routes to them."""
    if facts.experts is None:
        return 0.0, 0.0
    n_moe = n_moe_layers(facts)
    width = facts.extra.get("expert_hidden", facts.hidden)
    one = facts.extra.get("mlp_matrices", 3) * width * facts.experts.intermediate
    router: float = facts.hidden * facts.experts.n_experts
    if width != facts.hidden:
        router += 2 * facts.hidden * width
    return float(n_moe * facts.experts.n_experts * one), float(n_moe * router)
