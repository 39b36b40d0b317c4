"""What the scripts of scripts/export/ that write one framework's networks have in common: an ONNX file with the framework's own input and
output beside it, as tests/graph/exports_test.cc reads them.

    export_fixture.save(folder, "simple_cnn_tf2onnx", model, x, y)   # NAME.onnx, NAME_input.npy, NAME_output.npy
"""
import os

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "graph", "exports")


def add_arguments(parser):
    parser.add_argument("--out", default=FOLDER, help="where the files go (default tests/graph/exports)")


def save(folder, name, model, x, y):
    """model: an onnx.ModelProto; x, y: float32 arrays, x what the network was given, y what it answered."""
    import numpy as np
    import onnx

    # Exporters note where in the sources each node was made: paths of the machine, nothing a reader needs.
    model.ClearField("doc_string")
    model.ClearField("metadata_props")
    for node in model.graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}.onnx")
    onnx.save(model, path)
    np.save(os.path.join(folder, f"{name}_input.npy"), np.asarray(x, np.float32))
    np.save(os.path.join(folder, f"{name}_output.npy"), np.asarray(y, np.float32))
    print(f"{name}.onnx: opset {max(entry.version for entry in model.opset_import if not entry.domain)}, {len(model.graph.node)} nodes, "
          f"{os.path.getsize(path)} B, {', '.join(sorted({node.op_type for node in model.graph.node}))}")
