"""Networks of shapes that the zoo lacks, as ONNX files with random weights: test inputs of scripts/measure_search.

Needs the packages numpy and onnx.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(1)

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(self.random.standard_normal(shape, dtype=np.float32) * 0.05, name))
        return name

    def add(self, op, *inputs, **attributes):
        out = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], name=out, **attributes))
        return out

    def conv(self, x, into, out, size=3):
        return self.add("Relu", self.add("Conv", x, self.weight(out, into, size, size), kernel_shape=[size, size], pads=[size // 2] * 4))

    def dense(self, x, into, out):
        return self.add("MatMul", x, self.weight(into, out))

    def save(self, path, shape, result):
        graph = helper.make_graph(self.nodes, "odd", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1] + shape)],
                                  [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)], self.weights)
        model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
        onnx.save(model, path)


def unet(path, depth=4, width=32, image=128):
    """Halves and doubles an image, with a skip from each level down to the same level up: long values cross every cut."""
    b, skips, x, channels = Builder(), [], "x", 3
    for level in range(depth):
        x = b.conv(b.conv(x, channels, width << level), width << level, width << level)
        channels = width << level
        skips.append((x, channels))
        x = b.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.conv(x, channels, 2 * channels)
    channels *= 2
    for skip, wide in reversed(skips):
        x = b.add("ConvTranspose", x, b.weight(channels, wide, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
        x = b.conv(b.conv(b.add("Concat", skip, x, axis=1), 2 * wide, wide), wide, wide)
        channels = wide
    b.save(path, [3, image, image], b.conv(x, channels, 2, 1))


def branches(path, count=60, image=28):
    """So many branches of two convolutions beside each other, joined at the end."""
    b = Builder()
    ends = [b.conv(b.conv("x", 16, 16), 16, 16) for _ in range(count)]
    b.save(path, [16, image, image], b.conv(b.add("Concat", *ends, axis=1), 16 * count, 16, 1))


def experts(path, layers=6, hidden=256, ffn=1024, count=8, length=64):
    """A mixture of experts, all of which compute: each layer adds its experts' answers, weighted by a softmax."""
    b, x = Builder(), "x"
    for _ in range(layers):
        gates = b.add("Split", b.add("Softmax", b.dense(x, hidden, count), axis=-1), axis=-1)
        b.nodes[-1].output[:] = [f"{gates}.{i}" for i in range(count)]
        total = x
        for i in range(count):
            answer = b.dense(b.add("Relu", b.dense(x, hidden, ffn)), ffn, hidden)
            total = b.add("Add", total, b.add("Mul", answer, f"{gates}.{i}"))
        x = total
    b.save(path, [length, hidden], x)


ODD = {"unet": unet, "branches": branches, "experts": experts}
