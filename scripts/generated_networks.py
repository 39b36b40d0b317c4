"""Fourteen networks as people write them, with operators that have no hand-made kernels, and seeded weights: what
`scripts/compare_onnxruntime --generated` runs. Layers and sizes are those of small networks of their kind.

    generated_networks.save("mel", path, batch=8, seed=1)

Needs the packages numpy and onnx.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
# Of the largest value, where it is not what all networks are held to: ONNX Runtime's optimisations move averages of quantized values by a
# step (without them its outputs are nlsplit's to 2e-7).
TOLERANCES = {"quantized": 1.5e-2}


class Builder:
    def __init__(self, batch, seed):
        self.batch, self.nodes, self.weights, self.inputs = batch, [], [], []
        self.random = np.random.default_rng(seed)

    def input(self, *shape, dtype=TensorProto.FLOAT):
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, [self.batch, *shape]))
        return name

    def constant(self, values, dtype=np.float32):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def integers(self, *values):
        return self.constant(values, np.int64)

    def normal(self, *shape, scale=1.0):
        return self.constant(self.random.standard_normal(shape) * scale)

    def add(self, op, *inputs, outputs=1, **attributes):
        """One node; the name of its result, or the names."""
        name = f"{op.lower()}{len(self.nodes)}"
        results = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), results, name=name, **attributes))
        return results[0] if outputs == 1 else results

    def reshape(self, x, *shape):
        return self.add("Reshape", x, self.integers(*shape))

    def slice(self, x, begin, end, axis, step=1):
        return self.add("Slice", x, self.integers(begin), self.integers(end), self.integers(axis), self.integers(step))

    def resize(self, x, mode, times=2, coordinates="half_pixel"):
        # "floor" of asymmetric places is what torch's nearest neighbour is exported as.
        nearest = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"} if mode == "nearest" else {
            "coordinate_transformation_mode": coordinates}
        return self.add("Resize", x, "", self.constant([1, 1, times, times]), mode=mode, **nearest)

    def conv(self, x, into, out, size=3, stride=1, groups=1):
        gain = (2 / (into // groups * size * size)) ** 0.5
        return self.add("Conv", x, self.normal(out, into // groups, size, size, scale=gain), self.normal(out, scale=0.1),
                        kernel_shape=[size, size], pads=[size // 2] * 4, strides=[stride] * 2, group=groups)

    def conv_relu(self, *arguments, **named):
        return self.add("Relu", self.conv(*arguments, **named))

    def silu(self, x):
        return self.add("Mul", x, self.add("Sigmoid", x))

    def dense(self, x, into, out):
        return self.add("MatMul", x, self.normal(into, out, scale=into ** -0.5))

    def biased(self, x, into, out):
        return self.add("Add", self.dense(x, into, out), self.normal(out, scale=0.1))

    def layer_norm(self, x, width):
        return self.add("LayerNormalization", x, self.normal(width), self.normal(width), axis=-1)

    def heads(self, x, length, count, size):
        return self.add("Transpose", self.reshape(x, 0, length, count, size), perm=[0, 2, 1, 3])

    def attend(self, q, k, v, length, count, size, mask=None):
        keys = self.add("Transpose", k, perm=[0, 1, 3, 2])
        scores = self.add("Mul", self.add("MatMul", q, keys), self.constant(size ** -0.5))
        if mask is not None:
            scores = self.add("Where", mask, scores, self.constant(-1e9))
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        return self.reshape(self.add("Transpose", mixed, perm=[0, 2, 1, 3]), 0, length, count * size)

    def save(self, path, *results):
        outputs = [helper.make_empty_tensor_value_info(name) for name in results]
        graph = helper.make_graph(self.nodes, "generated", self.inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True), path)


def boxes_of(b, raw, count, classes):
    """A detector's answers [batch, count, 5 + classes] as corners of boxes, their scores and classes, of the 100 best."""
    places = b.constant(b.random.uniform(0, 40, (1, count, 2)))
    centre = b.add("Mul", b.add("Add", b.add("Sigmoid", b.slice(raw, 0, 2, 2)), places), b.constant(8))
    half = b.add("Mul", b.add("Exp", b.slice(raw, 2, 4, 2)), b.constant(4))
    boxes = b.add("Concat", b.add("Sub", centre, half), b.add("Add", centre, half), axis=2)
    boxes = b.add("Clip", boxes, b.constant(0), b.constant(320))
    scores = b.add("Mul", b.add("Sigmoid", b.slice(raw, 4, 5, 2)), b.add("Sigmoid", b.slice(raw, 5, 5 + classes, 2)))
    best = b.add("ReduceMax", scores, b.integers(2), keepdims=0)
    kind = b.add("ArgMax", scores, axis=2, keepdims=0)
    top, chosen = b.add("TopK", best, b.integers(100), outputs=2, axis=1)
    row = b.add("Unsqueeze", chosen, b.integers(2))
    kinds = b.add("Cast", b.add("GatherND", kind, row, batch_dims=1), to=TensorProto.FLOAT)
    corners = b.add("GatherND", boxes, row, batch_dims=1)
    return b.add("Concat", corners, b.add("Unsqueeze", top, b.integers(2)), b.add("Unsqueeze", kinds, b.integers(2)), axis=2)


def decode(b):
    """What stands behind a detector: 6300 places, 80 classes."""
    return boxes_of(b, b.input(6300, 85), 6300, 80)


def detector(b):
    """Three levels that are joined from the smallest to the largest by nearest neighbours; SiLU; boxes of the best."""
    x, widths, levels = b.silu(b.conv(b.input(3, 256, 256), 3, 16, stride=2)), [32, 64, 96, 128], []
    into = 16
    for width in widths:
        x = b.silu(b.conv(x, into, width, stride=2))
        x = b.add("Add", x, b.silu(b.conv(b.silu(b.conv(x, width, width // 2, 1)), width // 2, width)))
        levels.append((x, width))
        into = width
    joined, answers, count = None, [], 0
    for at, (level, width) in reversed(list(enumerate(levels[1:]))):
        level = b.silu(b.conv(level, width, 64, 1))
        joined = level if joined is None else b.silu(b.conv(b.add("Concat", level, b.resize(joined, "nearest"), axis=1), 128, 64))
        side = 32 >> at
        answers.append(b.add("Transpose", b.reshape(b.conv(joined, 64, 25, 1), 0, 25, side * side), perm=[0, 2, 1]))
        count += side * side
    return boxes_of(b, b.add("Concat", *answers, axis=1), count, 20)


def unet(b):
    """Halves and doubles an image, by nearest neighbours, with instance normalization and leaky activations."""
    def twice(x, into, out):
        for width in (into, out):
            x = b.add("InstanceNormalization", b.conv(x, width, out), b.normal(out), b.normal(out))
            x = b.add("LeakyRelu", x, alpha=0.01)
        return x

    x, skips, widths = twice(b.input(1, 128, 128), 1, 16), [], [16, 32, 64, 128]
    for into, out in zip(widths, widths[1:]):
        skips.append((x, into))
        x = twice(b.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), into, out)
    into = widths[-1]
    for skip, width in reversed(skips):
        x = twice(b.add("Concat", b.resize(x, "nearest"), skip, axis=1), into + width, width)
        into = width
    return b.add("Sigmoid", b.conv(x, into, 1, 1))


def segmenter(b):
    """Depthwise blocks with hard activations, a pyramid of pools, and two resizes between pixels to the image's size."""
    x, into = b.add("HardSwish", b.conv(b.input(3, 256, 256), 3, 16, stride=2)), 16
    for out, stride in ((24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1)):
        y = b.add("HardSwish", b.conv(x, into, into * 3, 1))
        y = b.add("HardSwish", b.conv(y, into * 3, into * 3, 3, stride, into * 3))
        y = b.conv(y, into * 3, out, 1)
        x = b.add("Add", x, y) if stride == 1 else y
        into = out
    whole = b.add("Sigmoid", b.conv(b.add("GlobalAveragePool", x), 80, 64, 1))
    x = b.add("Mul", b.conv_relu(x, 80, 64, 1), whole)
    x = b.conv(b.resize(x, "linear", 4), 64, 21, 1)
    return b.add("Softmax", b.resize(x, "linear", 4), axis=1)


def recogniser(b):
    """A line of text: convolutions, an LSTM in both directions, an attention over places, and the letters' logarithms."""
    x = b.input(1, 32, 256)
    for into, out, pool in ((1, 32, [2, 2]), (32, 64, [2, 2]), (64, 128, [2, 1]), (128, 128, [2, 1])):
        x = b.add("MaxPool", b.conv_relu(x, into, out), kernel_shape=pool, strides=pool)
    x = b.add("ReduceMean", x, b.integers(2), keepdims=0)
    x = b.add("Transpose", x, perm=[2, 0, 1])
    w, r = b.normal(2, 4 * 96, 128, scale=0.09), b.normal(2, 4 * 96, 96, scale=0.1)
    x = b.add("LSTM", x, w, r, b.normal(2, 8 * 96, scale=0.1), hidden_size=96, direction="bidirectional", outputs=2)[0]
    x = b.reshape(b.add("Transpose", x, perm=[2, 0, 1, 3]), 0, 64, 192)
    q, k, v = (b.heads(b.biased(x, 192, 192), 64, 4, 48) for _ in range(3))
    x = b.layer_norm(b.add("Add", x, b.biased(b.attend(q, k, v, 64, 4, 48), 192, 192)), 192)
    return b.add("LogSoftmax", b.biased(x, 192, 97), axis=2)


def mel(b):
    """Three seconds of sound to 80 mel bands, as Whisper wants them: frames by a gather, a window, a transform by products."""
    size, hop, bins, frames = 400, 160, 201, 300
    x = b.add("Pad", b.input(frames * hop), b.integers(0, size // 2, 0, size // 2), mode="reflect")
    starts = np.arange(frames)[:, None] * hop + np.arange(size)[None]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    x = b.add("Mul", b.add("Gather", x, b.constant(starts, np.int64), axis=1), b.constant(window))
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(bins)) / size
    real, imaginary = b.add("MatMul", x, b.constant(np.cos(angles))), b.add("MatMul", x, b.constant(np.sin(angles)))
    two = b.constant(2)
    power = b.add("Add", b.add("Pow", real, two), b.add("Pow", imaginary, two))
    centres = np.linspace(0, bins - 1, 82)
    slopes = np.maximum(0, 1 - np.abs(np.arange(bins)[:, None] - centres[None, 1:-1]) / (centres[1] - centres[0]))
    bands = b.add("Max", b.add("MatMul", power, b.constant(slopes / 100)), b.constant(1e-10))
    bands = b.add("Mul", b.add("Log", bands), b.constant(1 / np.log(10)))
    highest = b.add("ReduceMax", bands, b.integers(1, 2), keepdims=1)
    bands = b.add("Max", bands, b.add("Sub", highest, b.constant(8)))
    bands = b.add("Div", b.add("Add", bands, b.constant(4)), b.constant(4))
    return b.add("Transpose", bands, perm=[0, 2, 1])


def speech(b):
    """What Whisper tiny begins with, of thirty seconds: 80 mel bands, two convolutions over time, GELU by erf, positions."""
    bands, width, frames = 80, 384, 3000

    def gelu(x):
        halves = b.add("Mul", x, b.add("Add", b.add("Erf", b.add("Div", x, b.constant(2 ** 0.5))), b.constant(1)))
        return b.add("Mul", halves, b.constant(0.5))

    def conv(x, into, stride):
        weights = b.normal(width, into, 3, scale=(2 / (3 * into)) ** 0.5)
        return b.add("Conv", x, weights, b.normal(width, scale=0.1), kernel_shape=[3], pads=[1, 1], strides=[stride])

    x = gelu(conv(gelu(conv(b.input(bands, frames), bands, 1)), width, 2))
    return b.add("Add", b.add("Transpose", x, perm=[0, 2, 1]), b.normal(frames // 2, width))


def diffusion(b):
    """A block of a diffusion U-Net: the time's sines, group norms with SiLU, attention over places, nearest neighbours."""
    side, wide = 32, 64

    def group_norm(x, channels, groups=8):
        y = b.reshape(x, 0, groups, -1)
        y = b.add("InstanceNormalization", y, b.constant(np.ones(groups)), b.constant(np.zeros(groups)), epsilon=1e-5)
        y = b.reshape(y, 0, channels, side, side)
        return b.add("Add", b.add("Mul", y, b.normal(channels, 1, 1)), b.normal(channels, 1, 1))

    def residual(x, into, out, time):
        y = b.conv(b.silu(group_norm(x, into)), into, out)
        y = b.add("Add", y, b.add("Unsqueeze", b.biased(b.silu(time), 128, out), b.integers(2, 3)))
        y = b.conv(b.silu(group_norm(y, out)), out, out)
        return b.add("Add", y, x if into == out else b.conv(x, into, out, 1))

    x, moment = b.input(wide, side, side), b.input(1)
    angles = b.add("Mul", moment, b.constant(np.exp(-np.log(1e4) * np.arange(32) / 32)[None]))
    time = b.add("Concat", b.add("Sin", angles), b.add("Cos", angles), axis=1)
    time = b.biased(b.silu(b.biased(time, 64, 128)), 128, 128)
    x = residual(residual(x, wide, 128, time), 128, 128, time)
    y = b.add("Transpose", b.reshape(group_norm(x, 128), 0, 128, side * side), perm=[0, 2, 1])
    q, k, v = (b.heads(b.dense(y, 128, 128), side * side, 4, 32) for _ in range(3))
    y = b.biased(b.attend(q, k, v, side * side, 4, 32), 128, 128)
    x = b.add("Add", x, b.reshape(b.add("Transpose", y, perm=[0, 2, 1]), 0, 128, side, side))
    return b.conv(b.resize(x, "nearest"), 128, wide)


def preprocessing(b):
    """What stands before a network of images: bytes, channels last, made smaller between pixels, centred, channels first."""
    x = b.add("Cast", b.input(448, 448, 3, dtype=TensorProto.UINT8), to=TensorProto.FLOAT)
    x = b.add("Mul", x, b.constant(1 / 255))
    x = b.add("Div", b.add("Sub", x, b.constant([0.485, 0.456, 0.406])), b.constant([0.229, 0.224, 0.225]))
    x = b.add("Transpose", x, perm=[0, 3, 1, 2])
    return b.resize(x, "linear", 0.5)


def decoder(b):
    """Two blocks of a language model in elementary operators: RMS norms, rotated halves, a causal mask, a gated SiLU."""
    length, count, size = 64, 4, 64
    width = count * size
    angles = np.outer(np.arange(length), 1e4 ** (-np.arange(0, size, 2) / size))
    cosine, sine = (b.constant(np.concatenate([f(angles)] * 2, axis=1)) for f in (np.cos, np.sin))
    mask = b.constant(np.tril(np.ones((length, length))), bool)

    def rms_norm(x):
        mean = b.add("ReduceMean", b.add("Pow", x, b.constant(2)), b.integers(-1), keepdims=1)
        scale = b.add("Reciprocal", b.add("Sqrt", b.add("Add", mean, b.constant(1e-6))))
        return b.add("Mul", b.normal(width), b.add("Mul", x, scale))

    def rotated(x):
        low, high = b.slice(x, 0, size // 2, 3), b.slice(x, size // 2, size, 3)
        turned = b.add("Concat", b.add("Neg", high), low, axis=3)
        return b.add("Add", b.add("Mul", x, cosine), b.add("Mul", turned, sine))

    x = b.input(length, width)
    for _ in range(2):
        y = rms_norm(x)
        q, k, v = (b.heads(b.dense(y, width, width), length, count, size) for _ in range(3))
        y = b.attend(rotated(q), rotated(k), v, length, count, size, mask)
        x = b.add("Add", x, b.dense(y, width, width))
        y = rms_norm(x)
        gated = b.add("Mul", b.silu(b.dense(y, width, 3 * width)), b.dense(y, width, 3 * width))
        x = b.add("Add", x, b.dense(gated, 3 * width, width))
    return rms_norm(x)


def quantized(b):
    """A network whose activations are stored as bytes between layers, weights in floats: quantized and back before each."""
    def stored(x):
        scale, zero = b.constant(0.04), b.constant(128, np.uint8)
        return b.add("DequantizeLinear", b.add("QuantizeLinear", x, scale, zero), scale, zero)

    x, into = b.input(3, 112, 112), 3
    for out, stride in ((16, 2), (32, 2), (32, 1), (64, 2), (64, 1)):
        y = stored(b.conv_relu(stored(x), into, out, stride=stride))
        x = b.add("Add", x, y) if stride == 1 else y
        into = out
    return b.add("Flatten", b.add("GlobalAveragePool", stored(x)))


def gelu_mlp(b):
    """A mixer of places and channels with GELU by tanh."""
    length, width = 128, 128

    def gelu(x):
        cube = b.add("Pow", x, b.constant(3))
        inner = b.add("Mul", b.add("Add", x, b.add("Mul", cube, b.constant(0.044715))), b.constant((2 / np.pi) ** 0.5))
        return b.add("Mul", b.add("Mul", x, b.add("Add", b.add("Tanh", inner), b.constant(1))), b.constant(0.5))

    x = b.input(length, width)
    for _ in range(2):
        y = b.add("Transpose", b.layer_norm(x, width), perm=[0, 2, 1])
        y = b.biased(gelu(b.biased(y, length, 2 * length)), 2 * length, length)
        x = b.add("Add", x, b.add("Transpose", y, perm=[0, 2, 1]))
        y = b.biased(gelu(b.biased(b.layer_norm(x, width), width, 4 * width)), 4 * width, width)
        x = b.add("Add", x, y)
    return x


def super_resolution(b):
    """An image three times as large: PReLU, channels into pixels, and what a cubic resize is short of."""
    image = b.input(3, 96, 96)
    x = b.add("PRelu", b.conv(image, 3, 32), b.constant(np.full((32, 1, 1), 0.2)))
    for _ in range(3):
        y = b.add("PRelu", b.conv(x, 32, 32), b.normal(32, 1, 1, scale=0.1))
        x = b.add("Add", x, b.add("Mul", b.conv(y, 32, 32), b.constant(0.2)))
    x = b.add("DepthToSpace", b.conv(x, 32, 27), blocksize=3, mode="CRD")
    return b.add("Clip", b.add("Add", x, b.resize(image, "cubic", 3)), b.constant(-1), b.constant(1))


def rotary(b):
    """Two blocks of a language model as PyTorch exports them: sines of positions, attention by Einsum, and a gated layer for those tokens
    alone that a router chooses, scattered back."""
    length, count, size, chosen = 128, 4, 64, 32
    width = count * size
    x, places = b.input(length, width), b.add("Mul", b.input(length), b.constant(100))
    angles = b.add("Einsum", places, b.constant(1e4 ** (-np.arange(0, size, 2) / size)), equation="bi,j->bij")
    angles = b.add("Unsqueeze", b.add("Concat", angles, angles, axis=2), b.integers(2))
    cosine, sine = b.add("Cos", angles), b.add("Sin", angles)
    mask = b.constant(np.tril(np.ones((length, length))), bool)

    def rotated(x):
        low, high = b.slice(x, 0, size // 2, 3), b.slice(x, size // 2, size, 3)
        turned = b.add("Concat", b.add("Neg", high), low, axis=3)
        return b.add("Add", b.add("Mul", x, cosine), b.add("Mul", turned, sine))

    for _ in range(2):
        y = b.layer_norm(x, width)
        q, k, v = (b.reshape(b.dense(y, width, width), 0, length, count, size) for _ in range(3))
        scores = b.add("Einsum", rotated(q), rotated(k), equation="bqhd,bkhd->bhqk")
        scores = b.add("Where", mask, b.add("Mul", scores, b.constant(size ** -0.5)), b.constant(-1e9))
        mixed = b.add("Einsum", b.add("Softmax", scores, axis=-1), v, equation="bhqk,bkhd->bqhd")
        x = b.add("Add", x, b.dense(b.reshape(mixed, 0, length, width), width, width))
        y = b.layer_norm(x, width)
        scores = b.reshape(b.dense(y, width, 1), 0, length)
        shares, which = b.add("TopK", scores, b.integers(chosen), outputs=2, axis=1)
        which = b.add("Expand", b.add("Unsqueeze", which, b.integers(2)), b.integers(1, 1, width))
        some = b.add("GatherElements", y, which, axis=1)
        gated = b.add("Mul", b.silu(b.dense(some, width, 3 * width)), b.dense(some, width, 3 * width))
        made = b.add("Mul", b.dense(gated, 3 * width, width), b.add("Unsqueeze", b.add("Sigmoid", shares), b.integers(2)))
        x = b.add("ScatterElements", x, which, made, axis=1, reduction="add")
    return b.layer_norm(x, width)


NETWORKS = {f.__name__: f for f in (detector, unet, segmenter, recogniser, mel, speech, diffusion, preprocessing, decode, decoder, quantized,
                                    gelu_mlp, super_resolution, rotary)}


def save(name, path, batch, seed):
    b = Builder(batch, seed)
    b.save(path, NETWORKS[name](b))
