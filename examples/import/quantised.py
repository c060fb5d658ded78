"""What config.json says of weights that are quantised already: the schemes that kaiju takes as they are."""

from typing import Any

from fields import Fields
from model_config import INT8, STATIC_INT8
from refused import Refused, shown
from unsupported import refuse_quantised

_COMPRESSED, _QUARK = "compressed-tensors", "quark"
_AS_A_REMEDY = (
    "use the model's unquantised folder (bf16), one in W8A8 with symmetric weights by channel, or a GGUF file (Q8_0)"
)


def _refuse(fields: Fields, method: str, what: str) -> Refused:
    return Refused(
        f"{fields.where}, weights quantised by {shown(method)}: {what}, which kaiju does not compute; {_AS_A_REMEDY}"
    )


def _check(fields: Fields, method: str, scheme: dict[str, Any], whose: str) -> None:
    """Each value of `scheme` is one value, or a tuple of those that are allowed."""
    for name, wanted in scheme.items():
        allowed = wanted if isinstance(wanted, tuple) else (wanted,)
        if fields.values.get(name) not in allowed:
            found = shown(repr(fields.values.get(name)))
            raise _refuse(fields, method, f"{whose} have {name} {found} instead of {' or '.join(map(repr, allowed))}")


def _compressed_tensors(fields: Fields) -> str:
    if fields.values.get("format") != "int-quantized":
        raise _refuse(
            fields, _COMPRESSED, f"the format is {shown(repr(fields.values.get('format')))} instead of 'int-quantized'"
        )
    if fields.has("kv_cache_scheme"):
        raise _refuse(fields, _COMPRESSED, "there is a kv_cache_scheme")
    if fields.values.get("sparsity_config"):
        raise _refuse(fields, _COMPRESSED, "there is a sparsity_config")
    groups = fields.values.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise _refuse(
            fields,
            _COMPRESSED,
            f"there are {len(groups) if isinstance(groups, dict) else 'no'} config_groups instead of one",
        )
    group = Fields(next(iter(groups.values())), fields.where)
    if group.values.get("targets") != ["Linear"]:
        raise _refuse(
            fields, _COMPRESSED, f"the targets are {shown(repr(group.values.get('targets')))} instead of ['Linear']"
        )
    if group.has("output_activations"):
        raise _refuse(fields, _COMPRESSED, "there are output_activations")
    common = {"num_bits": 8, "type": "int", "symmetric": True}
    _check(Fields(group.values.get("weights"), fields.where), _COMPRESSED, common | {"strategy": "channel"}, "weights")
    _check(
        Fields(group.values.get("input_activations"), fields.where),
        _COMPRESSED,
        common | {"strategy": "token", "dynamic": True},
        "input_activations",
    )
    return INT8


def _quark(fields: Fields) -> str:
    for name in ("layer_quant_config", "layer_type_quant_config", "kv_cache_quant_config"):
        if fields.values.get(name):
            raise _refuse(fields, _QUARK, f"there is a {name}")
    common = Fields(fields.values.get("global_quant_config"), f"{fields.where}: global_quant_config")
    for name in ("output_tensors", "bias"):
        if common.has(name):
            raise _refuse(fields, _QUARK, f"there are quantised {name}")
    weights = {"dtype": "int8", "qscheme": "per_channel", "ch_axis": (0, None), "is_dynamic": (False, None)}
    inputs = {"dtype": "int8", "qscheme": ("per_channel", "per_token"), "is_dynamic": True}
    for name, scheme in (("weight", weights), ("input_tensors", inputs)):
        its = Fields(common.values.get(name), f"{fields.where}: {name}")
        _check(its, _QUARK, scheme | {"symmetric": (True, None)}, name)
    return INT8


def stored_as(fields: Fields, kind: str) -> str:
    """How the matrices are stored, of the object quantization_config and the model's type."""
    method = fields.values.get("quant_method")
    if method == _COMPRESSED:
        return _compressed_tensors(fields)
    if method == _QUARK:
        return _quark(fields)
    if method == "gemma" and kind.startswith("gemma"):
        return STATIC_INT8
    raise refuse_quantised(method, fields.where)
