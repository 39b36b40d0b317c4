#!/usr/bin/env python3
"""Make the fixtures of tests/graph/safetensors with PyPI's `safetensors`.

FAMILY/ has config.json and the weights of a small random network, FAMILY_input.npy tokens and FAMILY_output.npy their logits, by the
definition in NumPy (scripts/safetensors_in_numpy.py). Still smaller ones are the fuzzer's first inputs, tests/fuzz/corpus/safetensors.

    scripts/export/safetensors_files.py     installs safetensors into build/venv-gguf
"""
import argparse
import json
import os
import shutil
import sys

sys.dont_write_bytecode = True  # scripts/ is for sources
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import private_python
from private_python import ROOT

LENGTH = 7
INDEX = "model.safetensors.index.json"
NORMAL = dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, num_hidden_layers=2, vocab_size=64,
              rms_norm_eps=1e-5, max_position_embeddings=64)
NETWORKS = {
    # Llama 3.2's stretched positions, in version 4's words; weights in two shards.
    "llama": dict(architectures=["LlamaForCausalLM"], hidden_act="silu", rope_theta=500.0, tie_word_embeddings=False, attention_bias=False,
                  rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                    original_max_position_embeddings=32)),
    "qwen2": dict(architectures=["Qwen2ForCausalLM"], hidden_act="silu", tie_word_embeddings=True, use_sliding_window=False,
                  sliding_window=4, rope_theta=100000.0, rope_scaling=dict(type="linear", factor=4.0)),
    # Version 5's words.
    "qwen3": dict(architectures=["Qwen3ForCausalLM"], hidden_act="silu", tie_word_embeddings=False, head_dim=16,
                  layer_types=["full_attention", "full_attention"], rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    "qwen3_moe": dict(architectures=["Qwen3MoeForCausalLM"], hidden_act="silu", tie_word_embeddings=False, head_dim=16, num_experts=4,
                      num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[]),
    "gemma": dict(architectures=["GemmaForCausalLM"], hidden_activation="gelu_pytorch_tanh", head_dim=16, num_attention_heads=2,
                  num_key_value_heads=1),
    "mistral": dict(architectures=["MistralForCausalLM"], hidden_act="silu", tie_word_embeddings=False, sliding_window=3),
    "phi3": dict(architectures=["Phi3ForCausalLM"], hidden_act="silu", tie_word_embeddings=False, sliding_window=5,
                 original_max_position_embeddings=4,
                 rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 2.0, 4.0, 8.0])),
    "yarn": dict(architectures=["Qwen2ForCausalLM"], hidden_act="silu", tie_word_embeddings=True,
                 rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    "gemma2": dict(architectures=["Gemma2ForCausalLM"], hidden_activation="gelu_pytorch_tanh", head_dim=16, num_attention_heads=2,
                   num_key_value_heads=1, sliding_window=3, query_pre_attn_scalar=9, attn_logit_softcapping=2.0,
                   final_logit_softcapping=3.0),
    "gemma3": dict(architectures=["Gemma3ForCausalLM"], hidden_activation="gelu_pytorch_tanh", head_dim=16, num_attention_heads=2,
                   num_key_value_heads=1, sliding_window=3, query_pre_attn_scalar=9, rope_theta=100000.0, rope_local_base_freq=500.0,
                   num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                   rope_scaling=dict(rope_type="linear", factor=2.0)),
}
KINDS = {"llama": ["BF16", "F16"], "qwen2": ["BF16"], "qwen3": ["F32", "BF16"], "qwen3_moe": ["BF16"], "gemma": ["F16"], "mistral": ["BF16"], "phi3": ["BF16"],
         "yarn": ["BF16"], "gemma2": ["F16"], "gemma3": ["F16"]}


def tensors_of(np, family, config, kinds, seed=3):
    """{name: (element type, array of f32)} as transformers calls them."""
    random, made = np.random.default_rng(seed), {}
    hidden, heads, ffn = config["hidden_size"], config["num_attention_heads"], config["intermediate_size"]
    kv_heads, head = config["num_key_value_heads"], config.get("head_dim", hidden // heads)

    def matrix(name, rows, columns):
        made[name] = (kinds[len(made) % len(kinds)], random.standard_normal((rows, columns)) / np.sqrt(columns))

    def vector(name, size, mean):
        made[name] = (kinds[-1], mean + 0.1 * random.standard_normal(size))

    gemma, has_branch_norms = family.startswith("gemma"), family in ("gemma2", "gemma3")
    scale = 0.0 if gemma else 1.0  # Gemma's scales count from 1
    matrix("model.embed_tokens.weight", config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        vector(layer + "input_layernorm.weight", hidden, scale)
        if has_branch_norms:
            vector(layer + "pre_feedforward_layernorm.weight", hidden, scale)
            vector(layer + "post_feedforward_layernorm.weight", hidden, scale)
        if family == "phi3":
            matrix(layer + "self_attn.qkv_proj.weight", (heads + 2 * kv_heads) * head, hidden)
        for part, rows in (("q", heads * head), ("k", kv_heads * head), ("v", kv_heads * head)):
            if family == "phi3":
                break
            matrix(f"{layer}self_attn.{part}_proj.weight", rows, hidden)
            if config["architectures"] == ["Qwen2ForCausalLM"]:
                vector(f"{layer}self_attn.{part}_proj.bias", rows, 0)
            if family in ("qwen3", "qwen3_moe", "gemma3") and part != "v":
                vector(f"{layer}self_attn.{part}_norm.weight", head, scale)
        matrix(layer + "self_attn.o_proj.weight", hidden, heads * head)
        vector(layer + "post_attention_layernorm.weight", hidden, scale)
        feed_forward = [(layer + "mlp.", ffn)]
        if family == "qwen3_moe":
            matrix(layer + "mlp.gate.weight", config["num_experts"], hidden)
            feed_forward = [(f"{layer}mlp.experts.{e}.", config["moe_intermediate_size"]) for e in range(config["num_experts"])]
        for name, width in feed_forward:
            if family == "phi3":
                matrix(name + "gate_up_proj.weight", 2 * width, hidden)
            else:
                matrix(name + "gate_proj.weight", width, hidden)
                matrix(name + "up_proj.weight", width, hidden)
            matrix(name + "down_proj.weight", hidden, width)
    vector("model.norm.weight", hidden, scale)
    if not config.get("tie_word_embeddings", gemma):
        matrix("lm_head.weight", config["vocab_size"], hidden)
    return made


def serialized(np, tensors):
    import safetensors
    names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    stored = {}  # stays until the library has read from their addresses
    for name, (kind, values) in tensors.items():
        values = np.ascontiguousarray(values, np.float32)
        stored[name] = {"F32": values, "F16": values.astype(np.float16), "BF16": (values.view(np.uint32) >> 16).astype(np.uint16)}[kind]
    specs = {name: safetensors.TensorSpec(dtype=names[tensors[name][0]], shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
             for name, array in stored.items()}
    return bytes(safetensors.serialize(specs, {"format": "pt"}))


def write_network(np, folder, family, config, kinds, shards=1):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        file.write(json.dumps(config, indent=1) + "\n")
    tensors = tensors_of(np, family, config, kinds)
    names = ["model.safetensors"] if shards == 1 else [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    places = {tensor: names[i * shards // len(tensors)] for i, tensor in enumerate(tensors)}
    for name in names:
        with open(os.path.join(folder, name), "wb") as file:
            file.write(serialized(np, {tensor: value for tensor, value in tensors.items() if places[tensor] == name}))
    if shards > 1:
        with open(os.path.join(folder, INDEX), "w") as file:
            file.write(json.dumps({"metadata": {}, "weight_map": places}, indent=1) + "\n")


def write_seed(folder, path):
    """All its files in one, each behind a line `== NAME`; the one with the weights is the last."""
    names = sorted(os.listdir(folder), key=lambda name: (name.endswith(".safetensors"), name))
    with open(path, "wb") as out:
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                out.write(f"== {name}\n".encode() + file.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these networks (default: all)")
    parser.add_argument("--out", default=os.path.join(ROOT, "tests"),
                        help="the folder of graph/safetensors and fuzz/corpus/safetensors (default tests)")
    private_python.add_arguments(parser)
    args = parser.parse_args()
    private_python.enter(args, "venv-gguf", ["numpy", "gguf", "safetensors>=0.8"])

    import numpy as np

    import safetensors_in_numpy

    out, seeds = os.path.join(args.out, "graph", "safetensors"), os.path.join(args.out, "fuzz", "corpus", "safetensors")
    os.makedirs(seeds, exist_ok=True)
    for family, own in NETWORKS.items():
        if args.names and family not in args.names:
            continue
        folder = os.path.join(out, family)
        write_network(np, folder, family, NORMAL | own, KINDS[family], 2 if family == "llama" else 1)
        tokens = np.random.default_rng(5).integers(0, 64, (1, LENGTH))
        np.save(os.path.join(out, f"{family}_input.npy"), tokens)
        logits = safetensors_in_numpy.Network(folder).logits(tokens[0])
        np.save(os.path.join(out, f"{family}_output.npy"), logits[None].astype(np.float32))
        print(f"{family}: {sum(os.path.getsize(entry) for entry in os.scandir(folder))} B, logits up to {np.abs(logits).max():.3g}")
        tiny = dict(hidden_size=8, num_attention_heads=2, num_key_value_heads=1, intermediate_size=8, num_hidden_layers=1, vocab_size=8)
        tiny |= dict(head_dim=4) if "head_dim" in own else {}
        tiny |= dict(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=8) if "num_experts" in own else {}
        write_network(np, folder + "_seed", family, NORMAL | own | tiny, KINDS[family])
        if family == "llama":  # an index, of one shard
            os.rename(folder + "_seed/model.safetensors", folder + "_seed/a.safetensors")
            with open(os.path.join(folder + "_seed", INDEX), "w") as file:
                places = dict.fromkeys(tensors_of(np, family, NORMAL | own | tiny, KINDS[family]), "a.safetensors")
                file.write(json.dumps({"weight_map": places}) + "\n")
        write_seed(folder + "_seed", os.path.join(seeds, family))
        shutil.rmtree(folder + "_seed")


if __name__ == "__main__":
    main()
