"""Models and formats that the importer refuses: why, and the nearest thing that works."""

from refused import Refused, shown

SUPPORTED = (
    "Llama 2 and 3, SmolLM2, SmolLM3, Mistral, Qwen2 and 2.5, Qwen3 (dense), Gemma 3, Gemma 4 (12B and 31B) and Arcee AFM"
)
_MOE = "is a mixture of experts, which kaiju does not compute; use a dense model, such as {0}"
_LINEAR = "has linear attention or state-space layers, which kaiju does not compute; use {0}"

# By Hugging Face's model_type and GGUF's general.architecture, both in lower case without - and _.
_MODELS = {
    "mixtral": _MOE.format("Mistral Nemo or Mistral Small 3"),
    "qwen2moe": _MOE.format("Qwen2.5 or Qwen3-8B"),
    "qwen3moe": _MOE.format("Qwen3-8B or Qwen3-14B"),
    "llama4": _MOE.format("Llama 3.1 8B"),
    "llama4text": _MOE.format("Llama 3.1 8B"),
    "gptoss": _MOE.format("Qwen3-14B"),
    "olmoe": _MOE.format("SmolLM3"),
    "phimoe": _MOE.format("Qwen3-4B"),
    "granitemoe": _MOE.format("Qwen3-4B"),
    "glm4moe": _MOE.format("Qwen3-14B"),
    "dbrx": _MOE.format("Llama 3.1 8B"),
    "arctic": _MOE.format("Llama 3.1 8B"),
    "afmoe": _MOE.format("AFM-4.5B"),
    "grok": _MOE.format("Llama 3.1 8B"),
    "minimaxm2": _MOE.format("Qwen3-14B"),
    "bailingmoe": _MOE.format("Qwen3-8B"),
    "ernie45moe": _MOE.format("Qwen3-8B"),
    "deepseek": _MOE.format("a distilled DeepSeek-R1 (Qwen2.5 or Llama 3.1)"),
    "deepseek2": "has multi-head latent attention (MLA) and experts, which kaiju does not compute; use a distilled "
    "DeepSeek-R1 (Qwen2.5 or Llama 3.1)",
    "minicpm3": "has multi-head latent attention (MLA), which kaiju does not compute; use Qwen3-4B",
    "gemma": "is not supported: it is the first Gemma; use Gemma 3 1B or 4B",
    "gemma2": "caps attention scores inside the softmax, which kaiju does not compute; use Gemma 3 4B or 12B",
    "gemma3n": "has alternating residual streams, which kaiju does not compute; use Gemma 3 4B",
    "gemma4": "is read from its Hugging Face folder alone; import that, or use Gemma 3 12B",
    "gemma4moe": _MOE.format("Gemma 4 12B or 31B"),
    "gemmaembedding": "gives embeddings and no text; use Gemma 3 270M",
    "paligemma": "reads pictures; use Gemma 3 4B",
    "t5gemma": "has an encoder, which kaiju does not compute; use Gemma 3 4B",
    "recurrentgemma": _LINEAR.format("Gemma 3 4B"),
    "qwen3next": _LINEAR.format("Qwen3-14B"),
    "qwen35": _LINEAR.format("Qwen3-8B"),
    "qwen35moe": _LINEAR.format("Qwen3-8B"),
    "mamba": _LINEAR.format("SmolLM2"),
    "mamba2": _LINEAR.format("SmolLM2"),
    "rwkv": _LINEAR.format("SmolLM2"),
    "rwkv6": _LINEAR.format("SmolLM2"),
    "rwkv7": _LINEAR.format("SmolLM2"),
    "jamba": _LINEAR.format("Llama 3.1 8B"),
    "falconh1": _LINEAR.format("Llama 3.2 3B"),
    "lfm2": _LINEAR.format("SmolLM3"),
    "nemotronh": _LINEAR.format("Qwen3-8B"),
    "granitehybrid": _LINEAR.format("Qwen3-4B"),
    "bamba": _LINEAR.format("Llama 3.1 8B"),
    "phi3": "is not supported: its RoPE factors depend on the length of the text (longrope); use Qwen3-4B",
    "olmo2": "is not supported: it norms sublayers' outputs alone; use Llama 3.1 8B or SmolLM3",
    "olmo3": "is not supported: it norms sublayers' outputs alone; use Llama 3.1 8B or SmolLM3",
    "ministral3": "is not supported: it scales queries by their position; use Mistral Nemo or Mistral Small 3",
    "qwen2vl": "reads pictures; use Qwen2.5 or Qwen3, which read text",
    "qwen25vl": "reads pictures; use Qwen2.5",
    "qwen3vl": "reads pictures; use Qwen3",
    "mllama": "reads pictures; use Llama 3.1 or 3.2 1B and 3B",
}
_ALIASES = {"deepseekv2": "deepseek2", "deepseekv3": "deepseek2", "kimik2": "deepseek2"}

_UNQUANTISED = "use the model's unquantised folder (bf16), or a GGUF file of it (Q8_0 is closest)"
_METHODS = {
    "gptq": "GPTQ",
    "awq": "AWQ",
    "bitsandbytes": "bitsandbytes",
    "fp8": "FP8",
    "fbgemm_fp8": "FP8",
    "mxfp4": "MXFP4",
    "compressed-tensors": "compressed-tensors",
    "quark": "Quark",
    "aqlm": "AQLM",
    "hqq": "HQQ",
    "eetq": "EETQ",
    "torchao": "torchao",
    "modelopt": "ModelOpt",
    "bitnet": "BitNet",
    "exl2": "EXL2",
    "gemma": "Gemma's own",
}


def refuse_model(kind: str, where: str) -> Refused:
    """For a model_type or architecture that is none of those supported."""
    key = kind.lower().replace("-", "").replace("_", "").replace(".", "")
    reason = _MODELS.get(_ALIASES.get(key, key))
    if reason is None and "moe" in key:
        reason = _MOE.format("Qwen3-8B")
    if reason is None:
        reason = f"is not supported; kaiju imports {SUPPORTED}"
    return Refused(f"{where}: the architecture {shown(kind)!r} {reason}")


def refuse_quantised(method: object, where: str) -> Refused:
    """For a folder whose weights are quantised already."""
    name = _METHODS.get(method, shown(method)) if isinstance(method, str) else "unknown"
    return Refused(f"{where}: the weights are quantised ({name}), which kaiju does not read; {_UNQUANTISED}")
