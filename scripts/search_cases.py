"""Networks and clusters on which the search is measured: scripts/measure_search and scripts/measure_rankings.

Everything is simulated, and the machines' figures are examples. Language models of billions of parameters have a cluster's larger machines.
"""
import json
import pathlib

LLAMA_70B, LLAMA_405B = "llama?layers=80&hidden=8192&heads=64&ffn=28672", "llama?layers=126&hidden=16384&heads=128&ffn=53248"
MODELS = {  # with their batch
    "alexnet": 64, "simple_cnn": 256, "vgg16": 32, "vgg19": 32, "resnet18": 64, "resnet50": 64, "mobilenet_v2": 64, "efficientnet_b0": 64,
    "densenet121": 32, "inception_v3": 32, "bert_base": 32, "gpt2": 32, "vit_b16": 32, "llama?layers=16&hidden=1024&heads=16&kv_heads=4&ffn=3584": 32,
    "unet": 32, "branches": 32, "experts": 32}
LARGE = {
    "llama": 32, LLAMA_70B: 32, LLAMA_405B: 32,
    "gpt2?layers=96&hidden=12288&heads=96&vocab=50257&length=128": 32}
SHORT = {"llama?layers=16&hidden=1024&heads=16&kv_heads=4&ffn=3584": "llama 16x1024", "llama": "llama 8B",
         LLAMA_70B: "llama 70B", LLAMA_405B: "llama 405B",
         "gpt2?layers=96&hidden=12288&heads=96&vocab=50257&length=128": "GPT-3 175B"}


class Size:
    """What the machines of a cluster are, and how much faster its links."""

    def __init__(self, gflops, memory_gbps, memory_mib, links):
        self.gflops, self.memory_gbps, self.memory_mib, self.links = gflops, memory_gbps, memory_mib, links

    def costs(self, speed=1.0, memory=1.0):
        return (f"memory: {round(self.memory_mib * memory)}MiB, costs: {{roofline: {{compute: {self.gflops * speed}GFLOPS, "
                f"memory: {self.memory_gbps * speed}GBps}}}}")

    def link(self, mbps, latency="50us"):
        return f"bandwidth: {mbps * self.links}Mbps, latency: {latency}"


SMALL_SIZE, LARGE_SIZE = Size(60, 10, 8192, 1), Size(60_000, 1000, 81920, 10)


def star(count, mbps=1000, speeds=(1.0,), memories=None, slow=None):
    """Each machine on a host of its own at one switch. memories, slow: by machine, of its memory and its link's Mbit/s."""
    def text(size):
        lines = [f"  D{i}: {{host: h{i}, {size.costs(speeds[i % len(speeds)], (memories or {}).get(i, 1.0))}}}\n" for i in range(count)]
        links = [f"  - {{between: [h{i}, sw], {size.link((slow or {}).get(i, mbps))}}}\n" for i in range(count)]
        return "devices:\n" + "".join(lines) + "switches: [sw]\nlinks:\n" + "".join(links) + "source: h0\nsink: h0\n"
    return text


def racks(count, each, inside, between, latency="20us", far="200us"):
    """Racks of machines, each with a switch, at a switch of their own."""
    def text(size):
        lines = [f"  D{i}: {{host: h{i}, {size.costs()}}}\n" for i in range(count * each)]
        links = [f"  - {{between: [h{i}, rack{i // each}], {size.link(inside, latency)}}}\n" for i in range(count * each)]
        links += [f"  - {{between: [rack{r}, core], {size.link(between, far)}}}\n" for r in range(count)]
        return ("devices:\n" + "".join(lines) + "switches: [core, " + ", ".join(f"rack{r}" for r in range(count)) + "]\nlinks:\n"
                + "".join(links) + "source: h0\nsink: h0\n")
    return text


def fat_tree(size):
    levels = "".join(f"    - {{down: 8, up: {up}, link: {{{size.link(1000, '5us')}}}}}\n" for up in (1, 4, 4))
    return (f"topology:\n  kind: fat_tree\n  levels:\n{levels}devices:\n  D: {{hosts: all, {size.costs()}}}\nsource: h0\nsink: h0\n")


def boards(size):
    return (f"topology: {{kind: wifi, hosts: 3, link: {{{size.link(40, '1ms')}}}}}\ndevices:\n  D: {{hosts: all, {size.costs(0.2)}}}\n"
            "source: h0\nsink: h0\n")


CLUSTERS = {
    "4 equal": star(4),
    "unequal 4:2:1:1": star(4, speeds=(0.5, 0.25, 1.0, 0.25)),
    "slow link": star(4, slow={1: 20}),
    "two racks": racks(2, 3, 10_000, 200),
    "one tiny memory": star(4, memories={1: 0.003}),
    "8 equal, 10 Gbit/s": star(8, mbps=10_000),
    "16 equal": star(16),
    "16 unequal": star(16, speeds=(1.0, 0.5, 0.25, 0.75)),
    "64 in 8 nodes": racks(8, 8, 25_000, 10_000, "5us", "20us"),
    "512 in a fat tree": fat_tree,
    "two sites": racks(2, 4, 10_000, 200, "20us", "10ms"),
    "three boards": boards,
}


def scenario(model, cluster, folder=None, training=False, workload=None, search=""):
    """A scenario's text. folder: may hold MODEL.onnx, which is then the model. workload: instead of the usual one. search: a line."""
    file = pathlib.Path(folder or ".") / f"{model}.onnx"
    name = str(file) if folder and file.exists() else "zoo:" + model
    mode = "mode: training, optimizer: adam, " if training else ""
    workload = workload or f"{mode}batch: {MODELS.get(model) or LARGE[model]}, micro_batches: [1, 2, 4, 8, 16, 32]"
    size = LARGE_SIZE if model in LARGE else SMALL_SIZE
    return f"model: {json.dumps(name)}\nworkload: {{{workload}}}\n{search}" + CLUSTERS[cluster](size)
