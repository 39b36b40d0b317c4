#!/usr/bin/env python3
"""Make the fixtures of tests/graph/exports: small networks as PyTorch's two exporters write them, with PyTorch's outputs.

For each network and exporter (`dynamo`, the one of torch.export, and `trace`, the older one) NAME_EXPORTER.onnx, and NAME_input.npy and
NAME_output.npy for both. The batch is left open, as users export it.

    scripts/export/pytorch.py [--out FOLDER]     installs PyTorch and onnxscript into build/venv-torch (gigabytes)
    scripts/export/pytorch.py --python PYTHON    with one that has them
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True  # scripts/ is for sources
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import private_python
from private_python import ROOT


def networks(torch):
    nn = torch.nn

    class SimpleCNN(nn.Module):
        """Two convolutions, two fully connected layers."""

        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
            self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
            self.fc1 = nn.Linear(8 * 4 * 4, 32)
            self.fc2 = nn.Linear(32, 10)

        def forward(self, x):
            x = torch.relu(self.conv1(x))
            x = torch.relu(self.conv2(x))
            x = torch.flatten(x, 1)
            return self.fc2(torch.relu(self.fc1(x)))

    class Block(nn.Module):
        """Attention and a gated pair of linear layers, each behind a normalisation: what transformers are made of."""

        def __init__(self, width=16, heads=2):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            batch, steps, width = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.permute(0, 2, 1, 3).reshape(batch, steps, width))
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))

    return {"simple_cnn": (SimpleCNN(), (2, 3, 8, 8)), "block": (Block(), (2, 5, 16))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(ROOT, "tests", "graph", "exports"), help="where the files go (default tests/graph/exports)")
    private_python.add_arguments(parser)
    args = parser.parse_args()
    private_python.enter(args, "venv-torch", ["numpy", "torch", "onnx", "onnxscript"])

    import warnings

    warnings.filterwarnings("ignore")
    import numpy as np
    import onnx
    import torch

    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(1)
    for name, (network, shape) in networks(torch).items():
        network.eval()
        x = torch.randn(shape)
        with torch.no_grad():
            y = network(x)
        np.save(os.path.join(args.out, f"{name}_input.npy"), x.numpy())
        np.save(os.path.join(args.out, f"{name}_output.npy"), y.numpy())
        for exporter in ("dynamo", "trace"):
            path = os.path.join(args.out, f"{name}_{exporter}.onnx")
            if exporter == "dynamo":
                torch.onnx.export(network, (x,), path, dynamo=True, external_data=False, input_names=["x"], output_names=["y"],
                                  dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False)
            else:
                torch.onnx.export(network, (x,), path, dynamo=False, input_names=["x"], output_names=["y"],
                                  dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
            model = onnx.load(path)
            # The exporter notes where in its source each node was made: paths of the machine, nothing a reader needs.
            for node in model.graph.node:
                node.ClearField("metadata_props")
                node.ClearField("doc_string")
            onnx.save(model, path)
            print(f"{os.path.basename(path)}: opset {model.opset_import[0].version}, {len(model.graph.node)} nodes, {os.path.getsize(path)} B, "
                  f"{', '.join(sorted({node.op_type for node in model.graph.node}))}")
    print(f"PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
