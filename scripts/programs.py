"""The programs that scripts here run: those of build/release, or of the folder that BUILD_DIR names.

    import programs
    programs.build("nlsim", "nlbench")  # up to date; where BUILD_DIR names a folder nothing is built
    programs.path("nlsim")              # where it is; the script ends with 2 where it is not built
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def folder():
    return pathlib.Path(os.environ.get("BUILD_DIR") or ROOT / "build" / "release").resolve()


def path(name):
    program = folder() / "bin" / name
    if not program.exists():
        print(f"{pathlib.Path(sys.argv[0]).name}: there is no {program}: scripts/setup builds it, and BUILD_DIR names another folder",
              file=sys.stderr)
        sys.exit(2)
    return str(program)


def build(*names):
    if not os.environ.get("BUILD_DIR"):
        subprocess.run([ROOT / "scripts" / "setup", "release", *names], check=True)
