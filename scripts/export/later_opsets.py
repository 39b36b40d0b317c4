#!/usr/bin/env python3
"""Make the cases of tests/conformance/later: operators as opsets 18 to 24 define them.

The models and inputs are ONNX's own backend tests (Python package onnx), of operators whose semantics changed since opset 17, which is
where Debian's libonnx-testdata ends. The outputs are ONNX Runtime's where it has the operator, else those of ONNX's reference
implementation; origin.txt says which. Cases of newer opsets are taken where the operator is the same in opset 24.

    scripts/export/later_opsets.py [--out FOLDER]
"""
import argparse
import fnmatch
import os
import shutil
import sys

sys.dont_write_bytecode = True  # scripts/ is for sources
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import private_python
from private_python import ROOT

# Cases by operator. What an operator does with each attribute, not every shape.
WANTED = {
    "AffineGrid": "affine_grid_2d* affine_grid_3d*",
    "Attention": "attention_3d attention_3d_attn_mask attention_3d_causal attention_3d_diff_heads_sizes_scaled attention_3d_gqa_causal "
                 "attention_3d_softcap attention_3d_transpose_verification attention_4d_attn_mask_3d_causal attention_4d_attn_mask_bool "
                 "attention_4d_causal_with_past_and_present attention_4d_fp16 attention_4d_gqa_attn_mask attention_4d_softcap_neginf_mask "
                 "attention_4d_with_qk_matmul* attention_4d_causal_nonpad* attention_23_* attention_24_*",
    "AveragePool": "averagepool_2d_dilations* averagepool_3d_dilations_small",
    "BitwiseAnd": "bitwise_and*", "BitwiseNot": "bitwise_not*", "BitwiseOr": "bitwise_or*", "BitwiseXor": "bitwise_xor*",
    "CenterCropPad": "center_crop_pad*",
    "Col2Im": "col2im*",
    "DequantizeLinear": "dequantizelinear*", "QuantizeLinear": "quantizelinear*",
    "Gelu": "gelu*",
    "GridSample": "gridsample*",
    "GroupNormalization": "group_normalization*",
    "HardSwish": "hardswish*",
    "IsInf": "isinf*", "IsNaN": "isnan*",
    "LpPool": "lppool_2d_dilations*",
    "Mish": "mish*",
    "Pad": "*_pad*",
    "RMSNormalization": "rms_normalization*",
    "ReduceMax": "reduce_max*", "ReduceMin": "reduce_min*", "ReduceMean": "reduce_mean*", "ReduceSumSquare": "reduce_sum_square*",
    "ReduceL1": "reduce_l1*", "ReduceL2": "reduce_l2*", "ReduceLogSum": "reduce_log_sum*", "ReduceLogSumExp": "reduce_log_sum_exp*",
    "ReduceProd": "reduce_prod*",
    "Reshape": "reshape_allowzero*",
    "Resize": "resize*",
    "RotaryEmbedding": "rotary_embedding*",
    "ScatterElements": "scatter_elements*", "ScatterND": "scatternd*",
    "Split": "split*",
    "Swish": "swish*",
    "TensorScatter": "tensorscatter*",
    "TopK": "top_k*",
}
FIRST, LAST = 18, 24
LARGEST = 7500  # bytes of a case; larger ones say nothing more
MOST = 8  # of an operator
EVERY = {"Resize": 48, "Attention": 28}  # but of these, which have many ways, so many


def opset_of(model):
    return max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def with_opset(model, version):
    """The same model, said to be of that opset; None where the operator did not exist or is another one there."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        entry.version = version
    copy.ir_version = 10
    for text in ("doc_string", "producer_version"):
        copy.ClearField(text)
    for node in copy.graph.node:
        now, then = (onnx.defs.get_schema(node.op_type, v) for v in (opset_of(model), version))
        if {a for a in now.attributes} != {a for a in then.attributes} or len(now.inputs) != len(then.inputs):
            return None
    try:
        onnx.checker.check_model(copy)
    except onnx.checker.ValidationError:
        return None
    return copy


def supported(array):
    import numpy as np

    return isinstance(array, (np.ndarray, np.generic)) and array.dtype.kind in "fiub" and array.dtype.name in (
        "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


def by_runtime(model, inputs, expected):
    """ONNX Runtime's outputs, or None with the reason why not."""
    import numpy as np
    import onnxruntime

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        made = session.run(None, {value.name: array for value, array in zip(model.graph.input, inputs)})
    except Exception as error:  # not implemented, or not for that type
        return None, str(error).split("\n")[0]
    for ours, theirs in zip(made, expected):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return None, "another type or shape"
        if not np.allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=2e-3 if ours.dtype == np.float16 else 1e-3, atol=1e-6, equal_nan=True):
            return None, "ONNX Runtime and ONNX's reference disagree"
    return made, ""


def write_case(path, model, inputs, outputs):
    """PATH.onnx, and PATH.data: a GraphProto whose initializers are what goes in and what must come out."""
    import onnx
    from onnx import numpy_helper

    data = onnx.GraphProto()
    for role, arrays in (("input", inputs), ("output", outputs)):
        data.initializer.extend(numpy_helper.from_array(array, f"{role}_{i}") for i, array in enumerate(arrays))
    for suffix, message in ((".onnx", model), (".data", data)):
        with open(path + suffix, "wb") as file:
            file.write(message.SerializeToString(deterministic=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(ROOT, "tests", "conformance", "later"), help="where the folders go (default tests/conformance/later)")
    private_python.add_arguments(parser)
    args = parser.parse_args()
    private_python.enter(args)

    import warnings

    warnings.filterwarnings("ignore")
    import numpy as np
    import onnx
    import onnxruntime
    from onnx.backend.test.case.node import collect_testcases

    np.random.seed(0)
    shutil.rmtree(args.out, ignore_errors=True)
    os.makedirs(args.out)
    origin, total, taken = [], 0, {}
    for case in sorted(collect_testcases(None), key=lambda case: case.name):
        if case.model is None or "_expanded" in case.name or len(case.model.graph.node) != 1:
            continue
        op = case.model.graph.node[0].op_type
        name = case.name.removeprefix("test_")
        if op not in WANTED or not any(fnmatch.fnmatchcase(name, pattern) for pattern in WANTED[op].split()):
            continue
        inputs, outputs = case.data_sets[0]
        if not all(supported(array) for array in list(inputs) + list(outputs)):
            continue
        opset = opset_of(case.model)
        if opset < FIRST:
            continue
        model = with_opset(case.model, min(opset, LAST))
        size = sum(array.nbytes for array in list(inputs) + list(outputs)) + len(case.model.SerializeToString())
        if model is None or size > LARGEST or taken.get(op, 0) >= EVERY.get(op, MOST):
            continue
        inputs = [np.asarray(array, order="C") for array in inputs]
        made, why = by_runtime(model, inputs, outputs)
        write_case(os.path.join(args.out, case.name), model, inputs, outputs if made is None else made)
        origin.append(f"{case.name} {'onnx' if made is None else 'onnxruntime'}" + (f"  # {why}"[:100] if made is None else ""))
        taken[op] = taken.get(op, 0) + 1
        total += size
    with open(os.path.join(args.out, "origin.txt"), "w") as file:
        file.write(f"# Made by scripts/export/later_opsets.py: whose outputs a case has, ONNX Runtime {onnxruntime.__version__}'s or those of the\n"
                   f"# reference implementation of onnx {onnx.__version__}, with the reason why.\n")
        file.write("\n".join(origin) + "\n")
    print(f"{len(origin)} cases of {len(taken)} operators, {total} bytes")
    print(" ".join(f"{op}:{count}" for op, count in sorted(taken.items())))


if __name__ == "__main__":
    main()
