"""What the scripts that compare with other programs share: how programs are run, and a process that answers with lines of JSON.

    print(comparing.call([programs.path("nlsim"), "zoo"]))                       # the script ends where it fails
    with contextlib.closing(comparing.Answering("PyTorch", command, core)) as theirs:
        print(theirs.first, theirs.ask({"runs": 5}))
"""
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys


def fail(why):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {why}")


def call(command, **options):
    """What it says on standard output. Its own words about what went wrong are enough."""
    words = list(map(str, command))
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        fail(f"{' '.join(words)} ended with code {done.returncode}:\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def script(name):
    """The script beside this one, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(os.path.dirname(os.path.abspath(__file__)), name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def count(text):
    """An argparse type: a whole number from 1."""
    value = int(text)
    if value < 1:
        raise ValueError  # argparse says which option and text
    return value


def pin_to(*cores):
    """For a child's preexec_fn."""
    return lambda: os.sched_setaffinity(0, cores)


def processor():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        found = re.search(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
        if found:
            return found.group(1).strip()
    return platform.processor() or platform.machine()


def write_json(path, value):
    """Whole or not at all."""
    with open(path + ".tmp", "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
    os.replace(path + ".tmp", path)


class Answering:
    """A process on one core that says a line of JSON (`first`), and then one for each line it gets. `name` is for messages."""

    def __init__(self, name, command, core, **options):
        self.name = name
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=pin_to(core), **options)
        self.first = self.answer()

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            fail(f"{self.name}'s process ended with code {self.child.wait()}")
        return json.loads(line)

    def ask(self, question):
        self.child.stdin.write(json.dumps(question) + "\n")
        self.child.stdin.flush()
        return self.answer()

    def close(self):
        self.child.stdin.close()
        self.child.wait()
