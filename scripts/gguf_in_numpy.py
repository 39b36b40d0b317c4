"""What a GGUF file of the llama family computes, by its definition, in NumPy: the second opinion on nlsplit's own reading of such files.

    network = Network("model.gguf")          # read and dequantised by PyPI's `gguf`
    logits = network.logits([1, 2, 3])       # [tokens, vocabulary]; float64 throughout

Nothing here is shared with nlsplit: weights stay in the file's own order of rows, so that llama's queries and keys are rotated in pairs of
neighbours (llama.cpp's LLAMA_ROPE_TYPE_NORM), those of the other architectures in two halves (LLAMA_ROPE_TYPE_NEOX).
"""
import numpy as np


class Network:
    def __init__(self, path):
        import gguf
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.architecture = self.value("general.architecture")
        self.neighbours = self.architecture == "llama"
        self.weights = {}

    def value(self, key, otherwise=None):
        field = self.reader.fields.get(key)
        return otherwise if field is None else field.contents()

    def own(self, key, otherwise=None):
        return self.value(f"{self.architecture}.{key}", otherwise)

    def has(self, name):
        return name in self.tensors

    def weight(self, name):
        """[out, in], or a vector."""
        if name not in self.weights:
            import gguf
            tensor = self.tensors[name]
            self.weights[name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        return self.weights[name]

    def norm(self, x, name):
        epsilon = self.own("attention.layer_norm_rms_epsilon")
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * self.weight(name)

    def product(self, x, name):
        y = x @ self.weight(name + ".weight").T
        return y + self.weight(name + ".bias") if self.has(name + ".bias") else y

    def frequencies(self, d, local):
        if local and self.architecture == "gemma3":
            return 10000.0 ** (-2.0 * np.arange(d // 2) / d)
        base, kind = self.own("rope.freq_base", 10000.0), self.own("rope.scaling.type")
        plain = base ** (-2.0 * np.arange(d // 2) / d)
        if kind == "yarn":
            original, factor = self.own("rope.scaling.original_context_length"), self.own("rope.scaling.factor")
            low, high = (d * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base)) for turns in (32, 1))
            low, high = max(np.floor(low), 0), min(np.ceil(high), d - 1)
            ramp = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
            return plain / factor * ramp + plain * (1 - ramp)
        if self.has("rope_factors_long.weight"):
            beyond = self.positions > self.own("rope.scaling.original_context_length")
            return plain / self.weight(f"rope_factors_{'long' if beyond else 'short'}.weight")
        factors = self.weight("rope_freqs.weight") if self.has("rope_freqs.weight") else np.ones(d // 2)
        if self.own("rope.scaling.type") == "linear":
            factors = factors * self.own("rope.scaling.factor")
        return self.own("rope.freq_base", 10000.0) ** (-2.0 * np.arange(d // 2) / d) / factors

    def growth(self):
        """By what cosines and sines are multiplied besides."""
        if self.own("rope.scaling.type") == "yarn":
            return 0.1 * np.log(self.own("rope.scaling.factor")) + 1
        return self.own("rope.scaling.attn_factor", 1.0)

    def rotate(self, x, local):
        """x [tokens, heads, d]"""
        tokens, _, d = x.shape
        angles = (np.arange(tokens)[:, None] * self.frequencies(d, local))[:, None, :]
        first, second = (x[..., 0::2], x[..., 1::2]) if self.neighbours else (x[..., :d // 2], x[..., d // 2:])
        turned = first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)
        turned = [part * self.growth() for part in turned]
        if self.neighbours:
            return np.stack(turned, axis=-1).reshape(x.shape)
        return np.concatenate(turned, axis=-1)

    def scale(self, d):
        return 1 / np.sqrt(d)

    def is_local(self, layer):
        period = {"gemma2": 2, "gemma3": 6}.get(self.architecture)
        return bool(self.own("attention.sliding_window")) and (period is None or layer % period < period - 1)

    def attention(self, x, block, local):
        heads = self.own("attention.head_count")
        kv_heads = self.own("attention.head_count_kv", heads)
        tokens = len(x)
        if self.architecture == "phi3":
            both = self.product(x, block + "attn_qkv").reshape(tokens, heads + 2 * kv_heads, -1)
            q, k, v = np.split(both, [heads, heads + kv_heads], axis=1)
        else:
            q = self.product(x, block + "attn_q").reshape(tokens, heads, -1)
            k = self.product(x, block + "attn_k").reshape(tokens, kv_heads, -1)
            v = self.product(x, block + "attn_v").reshape(tokens, kv_heads, -1)
        if self.has(block + "attn_q_norm.weight"):
            q, k = self.norm(q, block + "attn_q_norm.weight"), self.norm(k, block + "attn_k_norm.weight")
        q, k = self.rotate(q, local), self.rotate(k, local)
        k, v = (np.repeat(part, heads // kv_heads, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) * self.scale(q.shape[-1])
        if self.own("attn_logit_softcapping"):
            scores = self.own("attn_logit_softcapping") * np.tanh(scores / self.own("attn_logit_softcapping"))
        scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
        if local:
            scores[:, np.tril(np.ones((tokens, tokens), bool), -self.own("attention.sliding_window"))] = -np.inf
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return self.product(np.einsum("hqk,khd->qhd", shares, v).reshape(tokens, -1), block + "attn_output")

    def activation(self, x):
        if self.architecture.startswith("gemma"):
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
        return x / (1 + np.exp(-x))

    def mixture(self, x, block):
        """Each token takes the experts with the largest scores; their shares among themselves are what counts."""
        scores = self.product(x, block + "ffn_gate_inp")
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        chosen = np.argsort(-scores, axis=-1, kind="stable")[:, :self.own("expert_used_count")]
        gate, up, down = (self.weight(f"{block}ffn_{part}_exps.weight") for part in ("gate", "up", "down"))
        made = np.zeros_like(x)
        for row, experts in enumerate(chosen):
            all_shares = shares[row, experts].sum() if self.shares_of_used() else 1
            for expert in experts:
                inner = self.activation(gate[expert] @ x[row]) * (up[expert] @ x[row])
                made[row] += shares[row, expert] / all_shares * (down[expert] @ inner)
        return made

    def shares_of_used(self):
        return True

    def logits(self, tokens):
        x = self.weight("token_embd.weight")[tokens]
        self.positions = len(tokens)
        if self.architecture.startswith("gemma"):
            x = x * np.sqrt(x.shape[-1])
        for i in range(self.own("block_count")):
            block = f"blk.{i}."
            y = self.attention(self.norm(x, block + "attn_norm.weight"), block, self.is_local(i))
            x = x + (self.norm(y, block + "post_attention_norm.weight") if self.has(block + "post_attention_norm.weight") else y)
            y = self.norm(x, block + "ffn_norm.weight")
            if self.has(block + "ffn_gate_inp.weight"):
                x = x + self.mixture(y, block)
                continue
            if self.architecture == "phi3":
                gate, up = np.split(self.product(y, block + "ffn_up"), 2, axis=-1)
            else:
                gate, up = self.product(y, block + "ffn_gate"), self.product(y, block + "ffn_up")
            y = self.product(self.activation(gate) * up, block + "ffn_down")
            x = x + (self.norm(y, block + "post_ffw_norm.weight") if self.has(block + "post_ffw_norm.weight") else y)
        tied = not self.has("output.weight")
        logits = self.norm(x, "output_norm.weight") @ self.weight("token_embd.weight" if tied else "output.weight").T
        cap = self.own("final_logit_softcapping")
        return cap * np.tanh(logits / cap) if cap else logits
