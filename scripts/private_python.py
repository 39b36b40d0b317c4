"""A private Python with packages from PyPI, for the scripts here that need some.

    import private_python
    private_python.add_arguments(parser)
    args = parser.parse_args()
    private_python.enter(args)  # from here on numpy, onnx and onnxruntime can be imported

The packages are installed with pip into build/, which needs the package python3-venv and a network; --python names an interpreter that
has them already.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def add_arguments(parser):
    parser.add_argument("--python", help="a Python that has the packages (default: one of its own in build/, made if missing)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # already run by that Python


def python_with_packages(name, packages):
    """The Python of build/NAME, made if it is missing."""
    venv = os.path.join(ROOT, "build", name)
    python = os.path.join(venv, "bin", "python")
    complete = os.path.join(venv, "complete")
    if not os.path.exists(complete):
        print(f"installing {', '.join(packages)} into {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet"] + packages, check=True)
        open(complete, "w").close()
    return python


def enter(args, name="venv", packages=("numpy", "onnx", "onnxruntime")):
    """Goes on in the Python that has the packages: starts the script anew unless this is it already."""
    if not args.inside:
        python = args.python or python_with_packages(name, list(packages))
        sys.stdout.flush()
        os.execv(python, [python, os.path.abspath(sys.argv[0]), "--inside"] + sys.argv[1:])
