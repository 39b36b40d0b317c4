#!/usr/bin/env python3
"""Make TensorFlow's fixtures of tests/graph/exports: small Keras networks as tf2onnx writes them, with TensorFlow's outputs.

NAME_tf2onnx.onnx, NAME_tf2onnx_input.npy and NAME_tf2onnx_output.npy of each network. The batch is left open, as users export it.

    scripts/export/tensorflow.py [--out FOLDER]     installs TensorFlow and tf2onnx into build/venv-tensorflow (a gigabyte)
    scripts/export/tensorflow.py --python PYTHON    with one that has them
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True  # scripts/ is for sources
# In place of this folder: there this very file would be taken for the framework.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
import export_fixture
import private_python

# tf2onnx 1.16.1 knows Keras 2, which TensorFlow has up to 2.15, and uses what numpy 2 and onnx 1.17 no longer have.
PACKAGES = ["tensorflow-cpu==2.15.1", "tf2onnx==1.16.1", "numpy<2", "onnx<1.17"]


def networks(keras):
    layers = keras.layers

    def simple_cnn():
        """Two convolutions, two fully connected layers."""
        x = layers.Input((8, 8, 3))
        y = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
        y = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(y)
        y = layers.Dense(32, activation="relu")(layers.Flatten()(y))
        return keras.Model(x, layers.Dense(10)(y))

    def residual():
        """A convolution, then two with a way round them, each with batch normalization."""
        def convolved(x):
            return layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", use_bias=False)(x))

        x = layers.Input((8, 8, 3))
        y = layers.ReLU()(convolved(x))
        z = convolved(layers.ReLU()(convolved(y)))
        y = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.Add()([y, z])))
        return keras.Model(x, layers.Dense(10)(y))

    def block(width=16, heads=2):
        """Attention and a pair of linear layers, each behind a normalization: what transformers are made of."""
        x = layers.Input((5, width))
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.MultiHeadAttention(num_heads=heads, key_dim=width // heads)(y, y, use_causal_mask=True)
        y = layers.Add()([x, y])
        z = layers.LayerNormalization(epsilon=1e-5)(y)
        z = layers.Dense(width)(layers.Dense(2 * width, activation="gelu")(z))
        return keras.Model(x, layers.Add()([y, z]))

    return {"simple_cnn": simple_cnn, "residual": residual, "block": block}


def disturb(network, random):
    """Biases that are not zero, statistics that are not those of the identity."""
    for layer in network.layers:
        layer.set_weights([weight if weight.ndim > 1 else random.uniform(0.5, 1.5, weight.shape) for weight in layer.get_weights()])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    export_fixture.add_arguments(parser)
    private_python.add_arguments(parser)
    args = parser.parse_args()
    private_python.enter(args, "venv-tensorflow", PACKAGES)

    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import numpy as np
    import tensorflow as tf
    import tf2onnx

    tf.keras.utils.set_random_seed(1)
    random = np.random.default_rng(1)
    for name, build in networks(tf.keras).items():
        network = build()
        disturb(network, random)
        shape = network.input_shape[1:]
        x = random.standard_normal((2, *shape)).astype(np.float32)
        model, _ = tf2onnx.convert.from_keras(network, [tf.TensorSpec((None, *shape), tf.float32, name="x")], opset=18)
        export_fixture.save(args.out, f"{name}_tf2onnx", model, x, network(x, training=False).numpy())
    print(f"TensorFlow {tf.__version__}, tf2onnx {tf2onnx.__version__}")


if __name__ == "__main__":
    main()
