"""What the scripts that measure on emulated clusters share: how programs are run, how figures are printed."""
import pathlib
import subprocess
import sys

NAME = pathlib.Path(sys.argv[0]).name


def add_output(parser):
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="folder for everything")


def output_of(words, log):
    """What a program says on standard output; the log gets that and the errors. Ends the script where the program fails."""
    with open(log, "a") as out:
        out.write("$ " + " ".join(map(str, words)) + "\n")
        out.flush()
        done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=out, text=True)
        out.write(done.stdout)
    if done.returncode != 0:
        sys.exit(f"{NAME}: `{' '.join(map(str, words))}` ended with exit code {done.returncode}; its words are in {log}")
    return done.stdout


def percent(share, digits):
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def level_here():
    """The highest level of kernels that this machine runs, of those that emulated hosts compute with."""
    flags = open("/proc/cpuinfo").read()
    return "v4" if " avx512f " in flags and " avx512vl " in flags else "v3"
