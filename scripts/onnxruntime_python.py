"""A private Python with ONNX Runtime in it, for the scripts here that need one.

    import onnxruntime_python
    onnxruntime_python.add_arguments(parser)
    args = parser.parse_args()
    onnxruntime_python.enter(args)  # from here on numpy, onnx and onnxruntime can be imported

The packages are installed with pip into build/venv, which needs the package python3-venv and a network; --python names an interpreter
that has them already.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGES = ["numpy", "onnx", "onnxruntime"]


def add_arguments(parser):
    parser.add_argument("--python", help="a Python that has onnx, onnxruntime and numpy (default: build/venv, made if missing)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # already run by that Python


def python_with_packages():
    """The Python of build/venv, made if it is missing."""
    venv = os.path.join(ROOT, "build", "venv")
    python = os.path.join(venv, "bin", "python")
    complete = os.path.join(venv, "complete")
    if not os.path.exists(complete):
        print(f"installing {', '.join(PACKAGES)} into {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet"] + PACKAGES, check=True)
        open(complete, "w").close()
    return python


def enter(args):
    """Goes on in the Python that has the packages: starts the script anew unless this is it already."""
    if not args.inside:
        python = args.python or python_with_packages()
        sys.stdout.flush()
        os.execv(python, [python, os.path.abspath(sys.argv[0]), "--inside"] + sys.argv[1:])
