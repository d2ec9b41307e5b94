"""Tiny models of every causal-LM architecture that transformers has, each from its own config
class. Only sizes change; what a model computes is what its config says by default.
"""

import dataclasses

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
)

NAMES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
VOCABULARY = 97

_SIZES = {
    64: "hidden_size n_embd d_model word_embed_proj_dim embedding_size lru_width dim_model emb_dim"
    " attention_hidden_size embedding_dim hidden_size_global mm_embed_dim output_proj_dims"
    " ffn_hidden_size_global backbone_hidden_size",
    48: "intermediate_size n_inner d_ff ffn_dim ffn_hidden_size encoder_ffn_dim decoder_ffn_dim"
    " dim_ff dff mlp_dim feed_forward_size",
    32: "moe_intermediate_size shared_expert_intermediate_size expert_dim q_lora_rank"
    " expert_ffn_hidden_size moe_latent_size pronunciation_embed_dim shape_embed_dim"
    " image_size output_channels crop_size ext_pw_out_channel depthwise_separable_out_channel"
    " nemo_conv_channels input_size audio_embed_dim hc_lowrank",
    16: "kv_lora_rank qk_head_dim mamba_d_head index_head_dim attention_head_size num_centroids"
    " indexer_head_dim indexer_budget",
    8: "num_attention_heads n_head n_heads num_heads encoder_attention_heads"
    " decoder_attention_heads head_dim d_kv qk_nope_head_dim qk_rope_head_dim v_head_dim"
    " ssm_state_size state_size mamba_d_state mamba_n_heads linear_key_head_dim index_topk"
    " linear_value_head_dim hidden_size_per_layer_input global_head_dim patch_size mm_posemb_size"
    " linear_head_dim",
    6: "sliding_window attention_window local_attention attention_window_size window_size"
    " sliding_window_size",
    4: "num_key_value_heads num_experts num_local_experts n_routed_experts moe_num_experts"
    " time_step_rank mamba_dt_rank mamba_chunk_size chunk_size index_n_heads"
    " linear_num_key_heads linear_num_value_heads rotary_dim num_global_key_value_heads"
    " centroid_intermediate_top_k local_attn_chunk_length lsh_attn_chunk_length linear_num_heads"
    " swa_num_key_value_heads",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers"
    " num_encoder_layers num_decoder_layers num_experts_per_tok moe_k moe_topk top_k_experts"
    " n_mamba_heads num_memory_blocks num_codebooks num_blocks indexer_compress_ratio"
    " indexer_n_heads",
    1: "n_group topk_group n_shared_experts mamba_n_groups first_k_dense_replace moe_layer_freq"
    " zero_expert_num bos_token_id decoder_start_token_id indexer_kv_heads kv_n_heads",
    128: "max_position_embeddings n_positions n_ctx max_seq_len",
    VOCABULARY: "vocab_size vocab_size_per_layer_input shape_vocab_size pronunciation_vocab_size"
    " encoder_hash_byte_group_vocab ngram_vocab_size_base",
    0: "pad_token_id",
}
_SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}
_SMALL |= {"eos_token_id": 2, "use_cache": False}

_KINDS = ("layer_types", "layers_block_type", "mlp_layer_types", "block_types")
# Sizes that have no default, or none that is a number.
_NEEDED = [
    "pad_token_id",
    "hidden_size",
    "num_experts_per_tok",
    "n_routed_experts",
    "indexer_n_heads",
    "indexer_kv_heads",
    "indexer_head_dim",
    "indexer_budget",
    "indexer_compress_ratio",
]

_SOUND = {"text_encoder": {"model_type": "t5"}, "audio_encoder": {"model_type": "encodec"}}
# What sizes alone don't settle: relations between them, and what a config leaves open.
_OVERRIDES = {
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
            for kind in ("sliding_attention", "full_attention")
        },
    },
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8}},
    "dots1": {"n_shared_experts": 1},
    "gemma4_assistant": {
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
        }
    },
    "gemma4_unified_assistant": {"text_config": {"model_type": "gemma4_unified_text"}},
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
    "got_ocr2": {"text_config": {"model_type": "qwen2"}},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "ministral": {"head_dim": 8},
    "musicgen": _SOUND,
    "musicgen_melody": _SOUND,
    "nemotron": {"head_dim": 8, "num_key_value_heads": 4},
    "reformer": {
        "is_decoder": True,
        "attn_layers": ["local", "lsh"],
        "axial_pos_shape": [4, 4],
        "axial_pos_embds_dim": [16, 48],
        "num_buckets": 4,
        "hash_seed": 0,
    },
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "num_hidden_layers": 3,
    },
    "zaya": {"num_experts_per_tok": 1},
}


def tiny_config(name):
    """A config of this architecture with two layers, or one of each of its kinds of layers."""
    return CONFIG_MAPPING[name](**_settings(CONFIG_MAPPING[name]))


def _settings(kind, overrides=None):
    """What a config of this kind is made of, its parts' settings nested in it."""
    overrides = _OVERRIDES.get(kind.model_type, {}) | (overrides or {})
    settings = _small(kind) | overrides
    for part, part_kind in (getattr(kind, "sub_configs", None) or {}).items():
        part_overrides = overrides.get(part, {})
        if "model_type" in part_overrides:
            part_kind = CONFIG_MAPPING[part_overrides["model_type"]]
        if dataclasses.is_dataclass(part_kind):
            settings[part] = {"model_type": part_kind.model_type}
            settings[part] |= _settings(part_kind, part_overrides)
    return settings


def _small(kind):
    names = {field.name: field for field in dataclasses.fields(kind)}
    aliases = getattr(kind, "attribute_map", {})
    small = {
        name: size
        for name, size in _SMALL.items()
        if name in names
        and aliases.get(name, name) == name
        and (names[name].default is not None or name in _NEEDED)
        and isinstance(names[name].default, int | list | tuple | None)
    }
    if "kv_lora_rank" in names:  # keys and values of every head come from one small vector
        small.pop("num_key_value_heads", None)
        if names["num_key_value_heads"].default is not None:
            small["num_key_value_heads"] = small["num_attention_heads"]
    for name in _KINDS:
        if name in names and (every := getattr(kind(), name, None)):
            kinds = list(dict.fromkeys(every))
            small[name] = (kinds * 2)[: max(2, len(kinds))]
            if "num_hidden_layers" in small:
                small["num_hidden_layers"] = len(small[name])
    return small


def tiny_model(name):
    """In evaluation mode, in float32, with weights from seed 0."""
    torch.manual_seed(0)
    config = tiny_config(name)
    if hasattr(config, "decoder"):
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]._from_config(config.decoder)
    else:
        model = AutoModelForCausalLM.from_config(config)
    return model.float().eval()


def inputs(model, length, seed=1):
    """Two sequences of `length` tokens and their labels, or what a model takes in their place."""
    config = model.config
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (2, length), generator=generator)
    if config.model_type.startswith("musicgen"):  # of tokens of sound, several at each position
        labels = torch.stack([ids, ids.flip(0)], -1)
        return {"input_ids": labels.movedim(-1, 1).flatten(0, 1), "labels": labels}
    if hasattr(config, "backbone_hidden_size"):  # predicts from what another model has computed
        text = config.text_config
        layers = zip(text.layer_types, text.per_layer_config, strict=True)
        heads = {kind: layer.head_dim for kind, layer in layers}
        states = {
            kind: tuple(
                torch.randn(2, text.num_key_value_heads, length, dim, generator=generator)
                for _ in "kv"
            )
            for kind, dim in heads.items()
        }
        width = 2 * config.backbone_hidden_size
        embeddings = torch.randn(2, length, width, generator=generator)
        return {"inputs_embeds": embeddings, "shared_kv_states": states}
    result = {"input_ids": ids, "labels": ids}
    if config.model_type == "git":
        size = config.vision_config.image_size
        result["pixel_values"] = torch.randn(2, 3, size, size, generator=generator)
    return result


def layers(model):
    config = model.config.get_text_config(decoder=True)
    return next(
        count
        for name in ("num_hidden_layers", "n_layer", "n_layers", "decoder_layers")
        if (count := getattr(config, name, None))
    )
