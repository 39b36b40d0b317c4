#!/usr/bin/env python3
"""Make JAX's fixtures of tests/graph/exports: small Flax networks as jax2onnx writes them, with JAX's outputs.

NAME_jax2onnx.onnx, NAME_jax2onnx_input.npy and NAME_jax2onnx_output.npy of each network. The batch is left open, as users export it.

    scripts/export/jax_models.py [--out FOLDER]     installs JAX, Flax and jax2onnx into build/venv-jax
    scripts/export/jax_models.py --python PYTHON    with one that has them
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True  # scripts/ is for sources
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import export_fixture
import private_python

PACKAGES = ["jax2onnx", "flax", "jax", "onnx", "numpy"]


def networks(nnx):
    class SimpleCNN(nnx.Module):
        """Two convolutions, two fully connected layers."""

        def __init__(self, rngs):
            self.conv1 = nnx.Conv(3, 8, kernel_size=(3, 3), rngs=rngs)
            self.conv2 = nnx.Conv(8, 8, kernel_size=(3, 3), strides=(2, 2), rngs=rngs)
            self.fc1 = nnx.Linear(8 * 4 * 4, 32, rngs=rngs)
            self.fc2 = nnx.Linear(32, 10, rngs=rngs)

        def __call__(self, x):
            x = nnx.relu(self.conv2(nnx.relu(self.conv1(x))))
            x = x.reshape(x.shape[0], -1)
            return self.fc2(nnx.relu(self.fc1(x)))

    class Residual(nnx.Module):
        """A convolution, then two with a way round them, each with batch normalization."""

        def __init__(self, rngs):
            def conv(channels):
                return nnx.Conv(channels, 8, kernel_size=(3, 3), use_bias=False, rngs=rngs)

            def norm():
                return nnx.BatchNorm(8, use_running_average=True, rngs=rngs)

            self.conv1, self.conv2, self.conv3 = conv(3), conv(8), conv(8)
            self.norm1, self.norm2, self.norm3 = norm(), norm(), norm()
            self.fc = nnx.Linear(8, 10, rngs=rngs)

        def __call__(self, x):
            x = nnx.relu(self.norm1(self.conv1(x)))
            y = nnx.relu(self.norm2(self.conv2(x)))
            x = nnx.relu(x + self.norm3(self.conv3(y)))
            return self.fc(x.mean(axis=(1, 2)))

    class Block(nnx.Module):
        """Attention and a pair of linear layers, each behind a normalization: what transformers are made of."""

        def __init__(self, rngs, width=16, heads=2):
            self.norm1, self.norm2 = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(heads, width, width, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(width, 2 * width, rngs=rngs), nnx.Linear(2 * width, width, rngs=rngs)

        def __call__(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.down(nnx.gelu(self.up(self.norm2(x))))

    return {"simple_cnn": (SimpleCNN, (8, 8, 3)), "residual": (Residual, (8, 8, 3)), "block": (Block, (5, 16))}


def disturb(network, nnx, jax):
    """Biases that are not zero, statistics that are not those of the identity."""
    graph, state = nnx.split(network)
    leaves, tree = jax.tree.flatten(state)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    leaves = [jax.random.uniform(key, leaf.shape, leaf.dtype, 0.5, 1.5) if leaf.ndim == 1 and leaf.dtype == jax.numpy.float32 else leaf
              for key, leaf in zip(keys, leaves)]
    return nnx.merge(graph, jax.tree.unflatten(tree, leaves))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    export_fixture.add_arguments(parser)
    private_python.add_arguments(parser)
    args = parser.parse_args()
    private_python.enter(args, "venv-jax", PACKAGES)

    os.environ["JAX_PLATFORMS"] = "cpu"
    import importlib.metadata

    import jax
    import numpy as np
    from flax import nnx
    from jax2onnx import to_onnx

    random = np.random.default_rng(1)
    for name, (network, shape) in networks(nnx).items():
        network = disturb(network(nnx.Rngs(1)), nnx, jax)
        network.eval()
        x = random.standard_normal((2, *shape)).astype(np.float32)
        model = to_onnx(network, inputs=[("batch", *shape)], model_name=name)
        export_fixture.save(args.out, f"{name}_jax2onnx", model, x, network(x))
    print(f"JAX {jax.__version__}, jax2onnx {importlib.metadata.version('jax2onnx')}")


if __name__ == "__main__":
    main()
