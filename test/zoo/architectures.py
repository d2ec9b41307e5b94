"""Tiny models of every causal-LM architecture that transformers has, each from its own config
class. Only sizes change; what a model computes is what its config says by default.
"""

import dataclasses

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

NAMES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
VOCABULARY = 97

_SIZES = {
    64: "hidden_size n_embd d_model word_embed_proj_dim embedding_size lru_width dim_model"
    " attention_hidden_size embedding_dim",
    48: "intermediate_size n_inner d_ff ffn_dim ffn_hidden_size encoder_ffn_dim decoder_ffn_dim"
    " dim_ff",
    32: "moe_intermediate_size shared_expert_intermediate_size expert_dim q_lora_rank"
    " expert_ffn_hidden_size moe_latent_size",
    16: "kv_lora_rank qk_head_dim mamba_d_head index_head_dim",
    8: "num_attention_heads n_head n_heads num_heads encoder_attention_heads"
    " decoder_attention_heads head_dim d_kv qk_nope_head_dim qk_rope_head_dim v_head_dim"
    " ssm_state_size state_size mamba_d_state mamba_n_heads linear_key_head_dim index_topk"
    " linear_value_head_dim hidden_size_per_layer_input global_head_dim",
    6: "sliding_window attention_window local_attention attention_window_size",
    4: "num_key_value_heads num_experts num_local_experts n_routed_experts moe_num_experts"
    " time_step_rank mamba_dt_rank mamba_chunk_size chunk_size index_n_heads"
    " linear_num_key_heads linear_num_value_heads rotary_dim num_global_key_value_heads",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers"
    " num_encoder_layers num_decoder_layers num_experts_per_tok moe_k moe_topk top_k_experts"
    " n_mamba_heads num_memory_blocks",
    1: "n_group topk_group n_shared_experts mamba_n_groups first_k_dense_replace moe_layer_freq"
    " zero_expert_num bos_token_id decoder_start_token_id",
    128: "max_position_embeddings n_positions n_ctx",
    VOCABULARY: "vocab_size vocab_size_per_layer_input",
    0: "pad_token_id",
}
_SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}
_SMALL |= {"eos_token_id": 2, "use_cache": False}

_KINDS = ("layer_types", "layers_block_type", "mlp_layer_types", "block_types")

# What sizes alone don't settle: relations between them, and what a config leaves open.
_OVERRIDES = {
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"]},
    "dots1": {"moe_intermediate_size": 32, "head_dim": 8},
    "gemma3n_text": {
        "intermediate_size": [48] * 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.0] * 4,
        "laurel_rank": 8,
        "altup_num_inputs": 2,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 6},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "ministral": {"head_dim": 8},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 4},
    "qwen4_exp_text": {},
    "reformer": {"is_decoder": True},
    "zamba": {"num_hidden_layers": 6},
    "zaya": {"num_experts_per_tok": 1},
}


def tiny_config(name):
    """A config of this architecture with two layers, or one of each of its kinds of layers."""
    kind = CONFIG_MAPPING[name]
    overrides = dict(_OVERRIDES.get(name, {}))
    for part, part_kind in (getattr(kind, "sub_configs", None) or {}).items():
        if part_kind in CONFIG_MAPPING.values() and part not in overrides:
            overrides[part] = tiny_config(part_kind.model_type).to_dict()
    return kind(**_small(kind) | overrides)


def _small(kind):
    names = {field.name: field for field in dataclasses.fields(kind)}
    aliases = getattr(kind, "attribute_map", {})
    small = {
        name: size
        for name, size in _SMALL.items()
        if name in names
        and aliases.get(name, name) == name
        and (names[name].default is not None or name in _NEEDED)
        and isinstance(names[name].default, int | None)
    }
    defaults = kind()
    for name in _KINDS:
        layers = getattr(defaults, name, None) if name in names else None
        if layers:
            kinds = list(dict.fromkeys(layers))
            small[name] = (kinds * 2)[: max(2, len(kinds))]
            if "num_hidden_layers" in small:
                small["num_hidden_layers"] = len(small[name])
    return small


_NEEDED = ("pad_token_id", "hidden_size")


def tiny_model(name):
    """In evaluation mode, in float32, with weights from seed 0."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(tiny_config(name)).float().eval()
