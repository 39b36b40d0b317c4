#!/usr/bin/env python3
"""Make the fixtures of `nlsim profile import` in tests/tools/traces: five executions of ResNet-18 at batch 1, on one thread.

  ort_resnet18.json      ONNX Runtime's profile of the network that `nlsim zoo resnet18` writes, with those arguments that are read
  torch_resnet18.json    PyTorch's profile of torchvision's: operators and those right within them, with those arguments that are read
  nsys_resnet18.sqlite   NOT a file of Nsight Systems: the tables that are read, by its documented schema, with the names and times of
                         ort_resnet18.json. Each node is an NVTX range, its kernel is launched within it and runs later

    scripts/export/profiles.py ort|torch|nsys… [--out FOLDER]   installs what is needed into build/ (PyTorch: gigabytes)
    scripts/export/profiles.py torch --python PYTHON            with one that has torch and torchvision, or onnxruntime
"""
import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # scripts/ is for sources
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import private_python
from private_python import ROOT

EXECUTIONS = 5


def write_events(path, events, **more):
    """An event a line: changes can be read."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    head = "".join(f'"{key}":{json.dumps(value)},\n' for key, value in more.items())
    with open(path, "w") as file:
        file.write(f'{{{head}"traceEvents":[\n{lines}\n]}}\n' if more else f"[\n{lines}\n]\n")
    print(f"{path}: {len(events)} events, {os.path.getsize(path)} B")


def ort(out):
    import numpy as np
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "resnet18.onnx")
        subprocess.run([os.path.join(ROOT, "build", "release", "bin", "nlsim"), "zoo", "resnet18", "-o", model], check=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_profiling, options.profile_file_prefix = True, os.path.join(folder, "profile")
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: np.ones((1, 3, 224, 224), np.float32)}
        for _ in range(EXECUTIONS):
            session.run(None, feed)
        with open(session.end_profiling()) as file:
            events = json.load(file)
    kept = []
    for event in events:
        if event["cat"] == "Session" or event["name"].endswith("_kernel_time"):
            args = {key: event["args"][key] for key in ("op_name", "provider", "output_type_shape") if key in event["args"]}
            kept.append({**event, "pid": 1, "tid": 1, "args": args})
    write_events(os.path.join(out, "ort_resnet18.json"), kept)


def torch(out):
    import torch
    import torchvision
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.set_num_threads(1)
    network, x = torchvision.models.resnet18(weights=None).eval(), torch.ones(1, 3, 224, 224)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        network(x)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for _ in range(EXECUTIONS):
                with record_function("run"):
                    network(x)
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as file:
            events = [event for event in json.load(file)["traceEvents"] if event.get("cat") in ("cpu_op", "user_annotation")]
    kept, ends = [], []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        if len(ends) <= 2:  # a run, its operators, and those right within them
            args = {key: value for key, value in event["args"].items() if key == "Input Dims"}
            kept.append({**{key: event[key] for key in ("ph", "cat", "name", "ts", "dur")}, "tid": 1, "args": args})
        ends.append(event["ts"] + event["dur"])
    write_events(os.path.join(out, "torch_resnet18.json"), kept, schemaVersion=1)


# Of the documentation of its exporter: docs.nvidia.com/nsight-systems, "SQLite Export Schema Reference".
NSYS_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
  color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
"""
PUSH_POP = 59
PROCESS = (1 << 56) | (4711 << 24)
THREAD = PROCESS | 4712


def nsys(out):
    with open(os.path.join(out, "ort_resnet18.json")) as file:
        events = json.load(file)
    path = os.path.join(out, "nsys_resnet18.sqlite")
    if os.path.exists(path):
        os.remove(path)
    database = sqlite3.connect(path)
    database.execute("PRAGMA page_size = 1024")
    database.executescript(NSYS_TABLES)
    strings = {}

    def string(value):
        if value not in strings:
            strings[value] = len(strings) + 1
            database.execute("INSERT INTO StringIds VALUES (?, ?)", (strings[value], value))
        return strings[value]

    def nvtx(start, end, text=None, text_id=None):
        database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL, NULL, NULL, ?, ?, NULL, ?, 0)", (start, end, PUSH_POP, text, THREAD, text_id))

    launch_ns, later_ns = 2000, 30000  # any: what is read does not depend on them
    host = device = correlation = 0
    nodes = []
    for event in events:  # nodes of an execution come before it
        if event["cat"] == "Node":
            nodes.append(event)
        if event["name"] != "model_run":
            continue
        begin = host
        device = max(device, host + later_ns)
        for node in nodes:
            name = node["name"].removesuffix("_kernel_time").removesuffix("_nchwc")
            correlation += 1
            nvtx(host, host + 3 * launch_ns, text_id=string(name))
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0)",
                             (host + launch_ns, host + 2 * launch_ns, THREAD, correlation, string("cudaLaunchKernel_v7000")))
            kernel = string(node["args"]["op_name"].lower() + "_kernel")
            duration = 1000 * node["dur"]
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, ?, ?, ?)",
                             (device, device + duration, correlation, PROCESS, kernel, kernel))
            host += 3 * launch_ns
            device += duration + launch_ns
        nvtx(begin, host, text="run")
        host = max(host, device)
        nodes = []
    database.commit()
    database.execute("VACUUM")
    database.close()
    print(f"{path}: {os.path.getsize(path)} B")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["ort", "torch", "nsys"])
    parser.add_argument("--out", default=os.path.join(ROOT, "tests", "tools", "traces"), help="where the files go (default tests/tools/traces)")
    private_python.add_arguments(parser)
    args = parser.parse_args()
    packages = {"ort": ["numpy", "onnxruntime"], "torch": ["numpy", "torch", "torchvision"], "nsys": []}
    wanted = sorted({package for what in args.what for package in packages[what]})
    if wanted:
        private_python.enter(args, "venv-profiles-" + "-".join(args.what), wanted)
    os.makedirs(args.out, exist_ok=True)
    for what in args.what:
        {"ort": ort, "torch": torch, "nsys": nsys}[what](args.out)


main()
