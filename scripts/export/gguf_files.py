#!/usr/bin/env python3
"""Make the fixtures of tests/graph/gguf with PyPI's `gguf`.

blocks.gguf has random blocks of every element type that is read, and beside each tensor NAME one NAME.f32 with what that package reads in
it. ARCHITECTURE.gguf are small random networks, with tokens in ARCHITECTURE_input.npy and their logits, by the definition in NumPy
(scripts/gguf_in_numpy.py), in ARCHITECTURE_output.npy. Still smaller ones are the fuzzer's first inputs, tests/fuzz/corpus/gguf.

    scripts/export/gguf_files.py     installs gguf into build/venv-gguf
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True  # scripts/ is for sources
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import private_python
from private_python import ROOT

LENGTH = 7


def random_blocks(gguf, np, random, kind, rows, columns):
    """Rows of blocks whose scales are small floats and whose steps are anything."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    halves = {"Q4_0": [0], "Q8_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}[kind.name]
    for at in halves:
        # Small enough that a network's activations stay in bounds.
        scale = random.uniform(-1, 1, raw.shape[:2]) * {"Q4_K": 1e-3, "Q6_K": 1e-4, "Q8_0": 2e-3}.get(kind.name, 0.03)
        raw[:, :, at:at + 2] = scale.astype("<f2")[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


def write_blocks(gguf, np, path):
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "blocks")
    for name in ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q4_K", "Q6_K"]:
        kind = gguf.GGMLQuantizationType[name]
        if name == "F32":
            data = random.standard_normal((2, 8)).astype(np.float32)
        elif name == "F16":
            data = np.array([[0, -0.0, 1, -2, 65504, 2 ** -24, 1 / 3, np.inf]], np.float16)
        elif name == "BF16":
            data = gguf.quants.quantize(random.standard_normal((2, 8)).astype(np.float32), kind)
        else:
            data = random_blocks(gguf, np, random, kind, 2, 256)
        writer.add_tensor(name, data, raw_dtype=kind)
        writer.add_tensor(name + ".f32", gguf.quants.dequantize(data, kind).astype(np.float32))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class NetworkWriter:
    def __init__(self, gguf, np, path, architecture, seed):
        self.gguf, self.np, self.random = gguf, np, np.random.default_rng(seed)
        self.writer = gguf.GGUFWriter(path, architecture)

    def matrix(self, name, rows, columns, kind):
        kind, np = self.gguf.GGMLQuantizationType[kind], self.np
        if kind.name in ("Q4_K", "Q6_K"):  # which the package cannot write
            data = random_blocks(self.gguf, np, self.random, kind, rows, columns)
        else:
            data = self.gguf.quants.quantize((self.random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32), kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)

    def experts(self, name, count, rows, columns, kind):
        values = self.random.standard_normal((count, rows, columns)) / self.np.sqrt(columns)
        kind = self.gguf.GGMLQuantizationType[kind]
        self.writer.add_tensor(name, self.gguf.quants.quantize(values.astype(self.np.float32), kind), raw_dtype=kind)

    def vector(self, name, size, mean=1.0):
        self.writer.add_tensor(name, (mean + 0.1 * self.random.standard_normal(size)).astype(self.np.float32))


def write_network(gguf, np, path, architecture, types, *, hidden=32, heads=4, kv_heads=2, head=None, ffn=96, layers=2, vocab=64, tied=True,
                  experts=None, used=None, more=lambda network: None, seed=3):
    network = NetworkWriter(gguf, np, path, architecture, seed)
    writer = network.writer
    writer.add_block_count(layers)
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(3 * ffn if experts else ffn)  # of no layer, where all have experts
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used)
        writer.add_expert_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0 if architecture == "gemma" else 100000.0)
    if head is not None:
        writer.add_key_length(head)
        writer.add_value_length(head)
    head = head or hidden // heads
    kinds = iter(types * 100)
    network.matrix("token_embd.weight", vocab, hidden, types[0])
    for i in range(layers):
        block = f"blk.{i}."
        network.vector(block + "attn_norm.weight", hidden)
        if architecture in ("gemma2", "gemma3"):
            network.vector(block + "post_attention_norm.weight", hidden)
            network.vector(block + "post_ffw_norm.weight", hidden)
        if architecture == "phi3":
            network.matrix(block + "attn_qkv.weight", (heads + 2 * kv_heads) * head, hidden, next(kinds))
        for part, rows in (("q", heads * head), ("k", kv_heads * head), ("v", kv_heads * head)):
            if architecture == "phi3":
                break
            network.matrix(f"{block}attn_{part}.weight", rows, hidden, next(kinds))
            if architecture == "qwen2":
                network.vector(f"{block}attn_{part}.bias", rows, 0)
            if architecture in ("qwen3", "qwen3moe", "gemma3") and part != "v":
                network.vector(f"{block}attn_{part}_norm.weight", head)
        network.matrix(block + "attn_output.weight", hidden, heads * head, next(kinds))
        network.vector(block + "ffn_norm.weight", hidden)
        if experts:
            network.matrix(block + "ffn_gate_inp.weight", experts, hidden, "F32")
            network.experts(block + "ffn_gate_exps.weight", experts, ffn, hidden, next(kinds))
            network.experts(block + "ffn_up_exps.weight", experts, ffn, hidden, next(kinds))
            network.experts(block + "ffn_down_exps.weight", experts, hidden, ffn, next(kinds))
            continue
        if architecture == "phi3":
            network.matrix(block + "ffn_up.weight", 2 * ffn, hidden, next(kinds))
        else:
            network.matrix(block + "ffn_gate.weight", ffn, hidden, next(kinds))
            network.matrix(block + "ffn_up.weight", ffn, hidden, next(kinds))
        network.matrix(block + "ffn_down.weight", hidden, ffn, ["Q4_K", "Q6_K"][i] if ffn == 256 else next(kinds))
    network.vector("output_norm.weight", hidden)
    if not tied:
        network.matrix("output.weight", vocab, hidden, types[-1])
    more(network)
    finish(writer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these networks (default: all, and blocks)")
    parser.add_argument("--out", default=os.path.join(ROOT, "tests"), help="the folder of graph/gguf and fuzz/corpus/gguf (default tests)")
    private_python.add_arguments(parser)
    args = parser.parse_args()
    private_python.enter(args, "venv-gguf", ["numpy", "gguf", "safetensors>=0.8"])

    import gguf
    import numpy as np

    import gguf_in_numpy

    out, seeds = os.path.join(args.out, "graph", "gguf"), os.path.join(args.out, "fuzz", "corpus", "gguf")
    os.makedirs(out, exist_ok=True)
    os.makedirs(seeds, exist_ok=True)
    for folder in (out, seeds) if not args.names else ():
        write_blocks(gguf, np, os.path.join(folder, "blocks.gguf"))

    def rope_factors(network):  # as Llama 3.1 has them
        network.writer.add_tensor("rope_freqs.weight", np.linspace(1, 8, 4).astype(np.float32))

    def linear(network):
        network.writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        network.writer.add_rope_scaling_factor(4.0)

    def window(network):
        network.writer.add_sliding_window(3)

    def soft_caps(network):
        window(network)
        network.writer.add_attn_logit_softcapping(2.0)
        network.writer.add_final_logit_softcapping(3.0)

    def long_factors(network):
        network.writer.add_sliding_window(5)
        network.writer.add_rope_scaling_orig_ctx_len(4)
        network.writer.add_rope_scaling_attn_factors(1.2)
        network.writer.add_tensor("rope_factors_short.weight", np.linspace(1, 2, 4).astype(np.float32))
        network.writer.add_tensor("rope_factors_long.weight", np.linspace(1, 8, 4).astype(np.float32))

    def yarn(network):
        network.writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        network.writer.add_rope_scaling_factor(4.0)
        network.writer.add_rope_scaling_orig_ctx_len(16)

    networks = {
        "llama": dict(types=["Q4_1", "Q8_0", "Q5_0"], ffn=256, tied=False, more=rope_factors),
        "qwen2": dict(types=["F16", "BF16", "Q8_0"], ffn=64, more=linear),
        "qwen3": dict(types=["Q8_0", "Q4_0"], head=16),
        "qwen3moe": dict(types=["Q8_0", "F16", "Q4_0", "BF16"], head=16, ffn=32, experts=5, used=2),
        "gemma": dict(types=["Q8_0"], heads=2, kv_heads=1, head=16),
        "gemma2": dict(types=["F32", "Q8_0"], heads=2, kv_heads=1, head=16, more=soft_caps),
        "gemma3": dict(types=["Q8_0"], heads=2, kv_heads=1, head=16, layers=7, ffn=32, more=window),
        "phi3": dict(types=["Q8_0", "F16"], ffn=64, tied=False, more=long_factors),
        "mistral": dict(types=["Q8_0"], ffn=64, tied=False, more=window, architecture="llama"),
        "yarn": dict(types=["Q8_0"], ffn=64, more=yarn, architecture="qwen2"),
    }
    for name, options in networks.items():
        if args.names and name not in args.names:
            continue
        path = os.path.join(out, f"{name}.gguf")
        options = dict(options)
        architecture = options.pop("architecture", name)
        write_network(gguf, np, path, architecture, **options)
        tokens = np.random.default_rng(5).integers(0, 64, (1, LENGTH))
        np.save(os.path.join(out, f"{name}_input.npy"), tokens)
        logits = gguf_in_numpy.Network(path).logits(tokens[0])
        np.save(os.path.join(out, f"{name}_output.npy"), logits[None].astype(np.float32))
        tiny = options | dict(types=["F32"], hidden=8, heads=2, kv_heads=1, ffn=8, vocab=8, layers=1)
        tiny |= dict(head=4) if "head" in options else {}
        tiny |= dict(experts=2, used=1) if "experts" in options else {}
        if name in ("llama", "phi3"):
            tiny["more"] = lambda network: None
        write_network(gguf, np, os.path.join(seeds, f"{name}.gguf"), architecture, **tiny)
        print(f"{name}.gguf: {os.path.getsize(path)} B, logits up to {np.abs(logits).max():.3g}")


if __name__ == "__main__":
    main()
