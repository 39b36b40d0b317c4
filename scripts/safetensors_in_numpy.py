"""What a folder of Hugging Face's with a network of the llama family computes, by its definition, in NumPy in float64: the second opinion on
nlsplit's own reading of config.json and safetensors files, which are read by PyPI's `safetensors`.

    network = Network("SmolLM2-135M")
    logits = network.logits([1, 2, 3])       # [tokens, vocabulary]

The arithmetic is that of scripts/gguf_in_numpy.py; here are names, conventions and positions as transformers has them.
"""
import glob
import json
import math
import os

import gguf_in_numpy
import numpy as np

TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
PARTS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_norm": "post_attention_layernorm", "attn_qkv": "self_attn.qkv_proj", "ffn_gate_inp": "mlp.gate", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
KEYS = {"block_count": "num_hidden_layers", "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads", "expert_used_count": "num_experts_per_tok", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "attention.sliding_window": "sliding_window", "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping"}
# With norms of what attention and feed-forward add: Gemma 2 and 3.
BRANCH_PARTS = {"ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
                "post_ffw_norm": "post_feedforward_layernorm"}
FAMILIES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Phi3ForCausalLM": "phi3", "Gemma2ForCausalLM": "gemma2",
            "Gemma3ForCausalLM": "gemma3", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "GemmaForCausalLM": "gemma",
            "Qwen3MoeForCausalLM": "qwen3_moe"}


def name_in_file(name, architecture=""):
    parts = dict(PARTS)
    if architecture in ("gemma2", "gemma3"):
        parts |= BRANCH_PARTS
    if architecture == "phi3":
        parts["ffn_up"] = "mlp.gate_up_proj"
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("blk."):
        _, layer, part = stem.split(".", 2)
        return f"model.layers.{layer}.{parts.get(part, part)}.{kind}"
    return f"{TENSORS[stem]}.{kind}"


def numbers(tensor):
    kinds = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
    raw = np.frombuffer(tensor["data"], kinds[tensor["dtype"]]).reshape(tensor["shape"])
    return (raw.astype(np.uint32) << 16).view(np.float32) if tensor["dtype"] == "BF16" else raw.astype(np.float32)


class Network(gguf_in_numpy.Network):
    neighbours = False

    def __init__(self, folder):
        import safetensors
        with open(os.path.join(folder, "config.json")) as file:
            self.config = json.load(file)
        self.architecture = FAMILIES[self.config["architectures"][0]]
        self.stored = {}
        for path in glob.glob(os.path.join(folder, "*.safetensors")):
            with open(path, "rb") as file:
                self.stored |= dict(safetensors.deserialize(file.read()))
        if self.config.get("tie_word_embeddings", self.architecture.startswith("gemma")):
            self.stored.pop("lm_head.weight", None)
        self.weights = {}

    def has(self, name):
        return name_in_file(name, self.architecture) in self.stored

    def own(self, key, otherwise=None):
        return self.config.get(KEYS[key], otherwise) if key in KEYS else otherwise

    def scale(self, d):
        return 1 / np.sqrt(self.config.get("query_pre_attn_scalar", d))

    def is_local(self, layer):
        listed = self.config.get("layer_types")
        return listed[layer] == "sliding_attention" if listed else super().is_local(layer)

    def rope(self):
        return self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}

    def growth(self):
        rope = self.rope()
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind == "yarn":
            return 0.1 * math.log(rope["factor"]) + 1
        if kind == "longrope":
            original = self.config["original_max_position_embeddings"]
            return math.sqrt(1 + math.log(self.config["max_position_embeddings"] / original) / math.log(original))
        return 1.0

    def shares_of_used(self):
        return self.config["norm_topk_prob"]

    def weight(self, name):
        if name.endswith("_exps.weight"):  # each expert has a matrix of its own
            _, layer, part = name.split(".", 2)
            part = part.removeprefix("ffn_").removesuffix("_exps.weight")
            names = [f"model.layers.{layer}.mlp.experts.{e}.{part}_proj.weight" for e in range(self.config["num_experts"])]
            return np.stack([numbers(self.stored[own]).astype(np.float64) for own in names])
        if name not in self.weights:
            values = numbers(self.stored[name_in_file(name, self.architecture)]).astype(np.float64)
            is_norm = self.architecture.startswith("gemma") and name.endswith("norm.weight")
            self.weights[name] = values + 1 if is_norm else values
        return self.weights[name]

    def frequencies(self, d, local):
        if local and "rope_local_base_freq" in self.config:
            return self.config["rope_local_base_freq"] ** (-2.0 * np.arange(d // 2) / d)
        rope = self.rope()
        base = rope.get("rope_theta", self.config.get("rope_theta", 10000.0))
        made = []
        for pair in range(d // 2):
            frequency = base ** (-2.0 * pair / d)
            kind = rope.get("rope_type", rope.get("type", "default"))
            if kind == "linear":
                frequency /= rope["factor"]
            elif kind == "llama3":  # as in transformers' _compute_llama3_parameters
                wave, context = 2 * math.pi / frequency, rope["original_max_position_embeddings"]
                low, high = rope["low_freq_factor"], rope["high_freq_factor"]
                if wave > context / low:
                    frequency /= rope["factor"]
                elif wave >= context / high:
                    smooth = (context / wave - low) / (high - low)
                    frequency = (1 - smooth) * frequency / rope["factor"] + smooth * frequency
            elif kind == "yarn":  # _compute_yarn_parameters
                turns = [d * math.log(rope["original_max_position_embeddings"] / (n * 2 * math.pi)) / (2 * math.log(base)) for n in (32, 1)]
                low, high = max(math.floor(turns[0]), 0), min(math.ceil(turns[1]), d - 1)
                ramp = min(max((pair - low) / max(high - low, 0.001), 0), 1)
                frequency = frequency / rope["factor"] * ramp + frequency * (1 - ramp)
            elif kind == "longrope":
                beyond = self.positions > self.config["original_max_position_embeddings"]
                frequency /= rope["long_factor" if beyond else "short_factor"][pair]
            made.append(frequency)
        return np.array(made)
