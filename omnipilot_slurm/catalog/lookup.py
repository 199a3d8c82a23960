"""The catalog: what a name of a model or a GPU means, and how sure that is.

In: names as scripts, Slurm and tables write them. Out: Match (facts, how they were found, one
sentence that says so) or CatalogError with near names. Called by decide, fit and training.

    catalog = Catalog.load()
    catalog.model("/shared/models/llama-3.3-70b").facts.layers
    catalog.gpu("nvidia_a100-sxm4-80gb").mem_gib

A wrong guess is worse than none. A name is found when every word of it that tells models apart
(family, version, size, modality, date) is a known model's, word for word; only the fine-tune
(instruct, chat), the publisher and how the weights are stored may differ, and then `how` says so.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from omnipilot_slurm.catalog.gpu_table import GpuTable, load_gpus
from omnipilot_slurm.catalog.model_table import ModelTable, load_models
from omnipilot_slurm.catalog.names import ModelName, parse_name, says_size, storage_of
from omnipilot_slurm.errors import CatalogError
from omnipilot_slurm.resources import SITE_FOLDER, etc_layers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from omnipilot_slurm.facts import GpuFacts, ModelFacts

How = Literal["exact", "alias", "near", "sibling", "folder"]

#: whose file is meant where several publish one under the same name
_MAKERS = frozenset(
    """meta-llama mistralai qwen google microsoft deepseek-ai 01-ai internlm tiiuae ibm-granite
    allenai nvidia openai zai-org thudm cohereforai bigcode eleutherai facebook bigscience
    mosaicml databricks moonshotai minimaxai tencent baidu opengvlab baai huggyllama""".split()
)
#: who publish others' models under names of their own; found only under their own name
_MIRRORS = frozenset({"unsloth"})
_N_NEAR = 3
_PLAIN_BITS = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What a name means; `said` tells in one sentence how it was found ("" where it is the id)."""

    facts: ModelFacts
    how: How
    said: str = ""


class Catalog:
    """Models and GPUs by name."""

    def __init__(self, models: ModelTable, gpus: GpuTable) -> None:
        self._models = models
        self._gpus = gpus
        self._aliases = dict(models.aliases())
        self._by_words: dict[tuple[str, ...], list[tuple[ModelName, str]]] = defaultdict(list)
        for name, model_id in [*((i, i) for i in models.ids()), *self._aliases.items()]:
            parsed = parse_name(name)
            self._by_words[parsed.words].append((parsed, model_id))
        self._orgs = {name.org for pairs in self._by_words.values() for name, _ in pairs}
        self._plainest = [
            (words, frozenset(words), min(_plainness(pair) for pair in pairs))
            for words, pairs in self._by_words.items()
        ]

    @classmethod
    def load(cls, *, site: Path | None = SITE_FOLDER) -> Catalog:
        """Read the shipped gpus.yaml and models.yaml, and the site's own over them.

        Raises: ConfigError with every fault of both.
        """
        models, _ = load_models(etc_layers("models.yaml", site=site))
        gpus, _ = load_gpus(etc_layers("gpus.yaml", site=site))
        return cls(models, gpus)

    def model_ids(self) -> tuple[str, ...]:
        """Return the ids of all models."""
        return tuple(self._models.ids())

    def gpu_ids(self) -> tuple[str, ...]:
        """Return the ids of all GPUs."""
        return tuple(self._gpus.gpus)

    def gpu(self, name: str, *, mem_gb: float | None = None) -> GpuFacts:
        """Return the GPU that a name means; `mem_gb` as sold tells sizes of one name apart.

        Raises: CatalogError for a name that no card has, several share, or a MIG slice.
        """
        return self._gpus.find(name, mem_gb=mem_gb)

    def gpus_meant(self, name: str) -> tuple[GpuFacts, ...]:
        """Return the GPUs that a name may mean, several where it leaves the memory open.

        Raises: CatalogError for a MIG slice.
        """
        return self._gpus.meant(name)

    def model(self, name: str) -> Match:
        """Return the model that a name or a path means.

        Raises: CatalogError for a name that is no known model's, with near names.
        """
        if name in self._models.models:
            return Match(facts=self._models.facts(name), how="exact")
        if name in self._aliases:
            model_id = self._aliases[name]
            said = f"{name} is another name of {model_id}"
            return Match(facts=self._models.facts(model_id), how="alias", said=said)
        asked = self._with_org(parse_name(name))
        match = self._among(asked, self._by_words.get(asked.words, ()))
        if match is None:
            raise self._unknown(asked, name)
        how = "folder" if asked.folder else match.how
        return replace(match, how=how, said=f"{name} is read as {match.said}")

    def siblings(self, model_id: str) -> tuple[ModelFacts, ...]:
        """Return files of the same fine-tune that keep its weights otherwise, smallest first."""
        asked = parse_name(model_id)
        ids = {
            other: None
            for name, other in self._by_words.get(asked.words, ())
            if name.variants == asked.variants and name.storage != asked.storage
        }
        found = [self._models.facts(other) for other in ids if other != model_id]
        return tuple(sorted(found, key=lambda facts: (_stored_bits(facts), facts.id)))

    def _with_org(self, asked: ModelName) -> ModelName:
        """Forget a path's last folder but one where it is no publisher's name."""
        if asked.folder and asked.org not in self._orgs:
            return replace(asked, org=None)
        return asked

    def _among(self, asked: ModelName, known: Iterable[tuple[ModelName, str]]) -> Match | None:
        """Choose among models whose words are those of the name."""
        candidates = [pair for pair in known if pair[0].org == asked.org or not _mirrors(pair)]
        if not asked.words or not candidates:
            return None
        same = [pair for pair in candidates if pair[0].storage == asked.storage]
        if asked.storage and asked.org is not None:  # others store the same words in other ways
            same = [pair for pair in same if pair[0].org == asked.org]
        twins = [pair for pair in same if pair[0].variants == asked.variants]
        if twins:
            model_id = self._one(asked, twins)
            return Match(facts=self._models.facts(model_id), how="near", said=model_id)
        if same:
            return self._sibling(asked, same)
        return self._stored_otherwise(asked, candidates)

    def _sibling(self, asked: ModelName, same: list[tuple[ModelName, str]]) -> Match:
        """Return another fine-tune of the same architecture; its context is kept if all agree."""
        model_id = self._one(asked, same, strict=False)
        facts = self._models.facts(model_id)
        lengths = {self._models.facts(other).max_model_len for _, other in same}
        if len(lengths) > 1:
            facts = replace(facts, max_model_len=None)
        said = f"a sibling of {model_id}"
        return Match(facts=replace(facts, id=asked.base), how="sibling", said=said)

    def _stored_otherwise(
        self, asked: ModelName, candidates: list[tuple[ModelName, str]]
    ) -> Match | None:
        """Return a known architecture whose weights the name says are stored in another way."""
        storage = storage_of(asked)
        if isinstance(storage, str):
            raise CatalogError(
                f"model {asked.base!r} is not known: {storage}",
                near=[model_id for _, model_id in candidates[:_N_NEAR]],
                hint="add it to models.yaml in /etc/omnipilot with its quantization",
            )
        closest = [pair for pair in candidates if pair[0].variants == asked.variants]
        plain = [pair for pair in closest or candidates if not pair[0].storage]
        match = self._sibling(asked, plain or closest or candidates)
        dtype = match.facts.dtype
        if storage is not None and storage.method in {"awq", "gptq"}:
            dtype = "float16"
        facts = replace(match.facts, quantization=storage, dtype=dtype)
        how = "16-bit" if storage is None else storage.method
        return Match(facts=facts, how="sibling", said=f"{match.said} stored as {how}")

    def _one(
        self, asked: ModelName, pairs: list[tuple[ModelName, str]], *, strict: bool = True
    ) -> str:
        """Return the id that is meant among several of one name.

        The publisher's own first, then the maker's; files of others count when all are alike.
        """
        own = [model_id for name, model_id in pairs if name.org == asked.org]
        made = [model_id for name, model_id in pairs if name.org in _MAKERS]
        ids = own or made or [model_id for _, model_id in pairs]
        if strict and len({self._kept(model_id) for model_id in ids}) > 1:
            raise CatalogError(
                f"model {asked.base!r} may be {' or '.join(dict.fromkeys(ids))}",
                near=tuple(dict.fromkeys(ids)),
                hint="write the publisher before the name",
            )
        return ids[0]

    def _kept(self, model_id: str) -> tuple[object, ...]:
        row = self._models.models[model_id]
        kept = (row.get("max_model_len"), row.get("quantization"))
        return (self._models.shape_of(model_id), *kept)

    def _unknown(self, asked: ModelName, name: str) -> CatalogError:
        near = self._near(asked)
        advice = f"; near names: {', '.join(near)}" if near else ""
        hint = "add it to models.yaml in /etc/omnipilot"
        if asked.folder and not says_size(asked):
            hint = "name the folder after the model, or let the daemon read its config.json"
        return CatalogError(f"model {name!r} is not known{advice}", near=near, hint=hint)

    def _near(self, asked: ModelName) -> tuple[str, ...]:
        """Return the models that share the most words, those of makers and the plainest first."""
        wanted, first = frozenset(asked.words), asked.words[:1]
        scored = [
            (-len(shared), len(words) - len(shared), plainness)
            for ordered, words, plainness in self._plainest
            if len(shared := wanted & words) > 1 or (shared and ordered[:1] == first)
        ]
        return tuple(plainness[-1] for _, _, plainness in heapq.nsmallest(_N_NEAR, scored))


def _stored_bits(facts: ModelFacts) -> float:
    return _PLAIN_BITS if facts.quantization is None else facts.quantization.bits


def _plainness(pair: tuple[ModelName, str]) -> tuple[bool, int, str]:
    name, model_id = pair
    return name.org not in _MAKERS, len(name.storage), model_id


def _mirrors(pair: tuple[ModelName, str]) -> bool:
    """Tell whether a file is a re-upload whose name may leave out what tells models apart."""
    return pair[0].org in _MIRRORS
