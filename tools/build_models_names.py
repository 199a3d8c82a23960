"""Whose checkpoints build_models.py takes, and how their names say that they are quantised.

In: an id. Out: the name of a quantisation format, None, or "unknown". Called by
build_models_llmfit.
"""

from __future__ import annotations

import re

#: whose checkpoints enter: those who train models, and the larger ones who quantise them
ORGANISATIONS = frozenset(
    """01-ai abacusai agentica-org ai21labs aisingapore alibaba-nlp allenai amd answerdotai apple
    arcee-ai atlaai baai baichuan-inc baidu berkeley-nest bigcode bigscience bsc-lt
    bytedance-seed casperhansen cerebras codellama cognitivecomputations cohereforai coherelabs
    common-pile cyberagent databricks deci deepcogito deepseek-ai defog dicta-il dphn eleutherai
    elyza facebook fdtn-ai fixie-ai flowai freedomintelligence garage-bainh garage-baind google
    gryphe h2oai haoranxu huggingfaceh4 huggingfacem4 huggingfacetb hugging-quants huggyllama
    ibm-granite inclusionai intel internlm intfloat iquestlab ista-daslab jetbrains jinaai
    kakaocorp kwaipilot lgai-exaone liquidai llava-hf llm-jp lmsys m-a-p meta-llama microsoft
    minimaxai mistralai mixedbread-ai moonshotai mosaicml nanbeige naver-hyperclovax
    neuralmagic nexusflow nomic-ai nousresearch nova-sky novasky-ai nvidia oleehyo open-r1
    open-thoughts openai openbmb openchat opengvlab orionstarai phind pleias primeintellect
    princeton-nlp qodo qwen rednote-hilab redhatai rinna sail salesforce sao10k sarvamai scb10x
    seallms sentence-transformers servicenow-ai skywork snowflake speakleash stabilityai
    stepfun-ai swiss-ai technoculture teknium tencent thebloke thudm tiiuae tinyllama
    togethercomputer tokyotech-llm trillionlabs unbabel upstage utter-project vagosolutions
    wizardlm wizardlmteam xiaomimimo xwin-lm zai-org zyphra unsloth quanttrio cyankiwi mlabonne
    deepreinforce-ai typhoon-ai sakanaai dicta lightonai numind nuextract osmosis-ai
    pfnet""".split()
)

#: who publishes in bfloat16, so far as the classes above go
BFLOAT16 = frozenset(
    """qwen google ibm-granite zai-org huggingfacetb nvidia meta-llama deepseek-ai bytedance-seed
    01-ai internlm swiss-ai arcee-ai lgai-exaone tencent minimaxai xiaomimimo allenai mistralai
    openai upstage utter-project liquidai tiiuae moonshotai inclusionai baidu""".split()
)

#: endings of names and the format they stand for, by who uses them; first match wins
NAMED_FORMATS = (
    (r"^(qwen|tencent|zai-org|minimaxai|bytedance-seed|xiaomimimo)/.*-fp8$", "fp8-block"),
    (r"^(redhatai|neuralmagic)/.*-fp8(-dynamic)?$", "ct-fp8"),
    (r"-fp8-block$", "ct-fp8-block"),
    (r"-fp8-dynamic$", "ct-fp8"),
    (r"quantized\.w8a8$", "ct-w8a8"),
    (r"quantized\.w4a16$", "ct-w4a16"),
    (r"quantized\.w8a16$", "ct-w8a16"),
    (r"^(redhatai|neuralmagic)/.*-nvfp4$", "ct-nvfp4"),
    (r"^nvidia/.*-(nvfp4|fp4)$", "modelopt-nvfp4"),
    (r"^nvidia/.*-fp8$", "modelopt-fp8"),
    (r"^cyankiwi/.*-awq(-4bit)?$", "ct-w4a16-g32"),
    (r"-bnb-4bit$", "bnb-4bit"),
    (r"-gptq-int8$", "gptq-int8"),
    (r"-gptq(-int4)?$", "gptq-int4"),
    (r"-awq(-int4|-4bit)?$", "awq"),
)
#: words in a name that say it is quantised
QUANTISED = re.compile(
    r"fp8|fp4|mxfp|nvfp|awq|gptq|int4|int8|[-_.]w\d+a\d+|\dbit|bnb|gguf|mlx|exl2|autoround|"
    r"auto-round|hqq|quark|-ov$|onnx|qat|[-_]q\d|bf4|i\dq",
    re.IGNORECASE,
)


def format_of(model_id: str, package_format: str) -> str | None:
    """Return the quantisation format that a name stands for; None where it is 16-bit."""
    name = model_id.casefold()
    if QUANTISED.search(name) is None:
        return None if package_format in {"gguf", "safetensors"} else "unknown"
    for pattern, format_name in NAMED_FORMATS:
        if re.search(pattern, name):
            return format_name
    return "unknown"
