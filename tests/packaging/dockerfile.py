#!/usr/bin/env python3
"""Does what a Dockerfile says without Docker: each stage is a folder, first a bare root made by mmdebstrap.

    sudo tests/packaging/dockerfile.py DOCKERFILE FOLDER [--base FOLDER] [--bind PATH]... [--arg NAME=VALUE]... [-- COMMAND]

Runs every COPY and RUN of the Dockerfile in FOLDER/STAGE, the stages in their order, and at the end COMMAND (else CMD)
in the last one, as the user that the Dockerfile names. A stage begins as Ubuntu 24.04 or Debian 12 with its smallest set
of packages (--base: a folder that is one already), so an image that only a registry has is not tried: its CUDA is shown
by --bind, which shows a folder of this machine in each root, such as /usr/local/cuda. Needs root, mmdebstrap, unshare
and for Ubuntu its keyring (package ubuntu-keyring of Ubuntu) in /usr/share/keyrings. Not part of the tests.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys


def instructions(path):
    text = re.sub(r"\\\n", "", re.sub(r"(?m)^\s*#.*\n", "", path.read_text()))
    for line in text.splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def within(root, path):
    return root / str(path).lstrip("/")


class Stage:
    def __init__(self, root, arguments):
        self.root, self.folder, self.user, self.environment, self.command = root, "/", "root", {}, ["/bin/sh"]
        self.binds = [(pathlib.Path(path), path) for path in arguments.bind]

    def run(self, command, binds=()):
        """Runs a command in this root, in mount and process namespaces of its own, which end with it."""
        mounts = ["mount -t proc proc $R/proc", "mount --rbind /dev $R/dev"]
        for source, target in [*self.binds, *binds]:
            mounts.append(f"mkdir -p $R{target} && mount --rbind {shlex.quote(str(source))} $R{target}")
        as_user = "" if self.user == "root" else f"--userspec={self.user}:{self.user} "
        inside = f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}"
        script = " && ".join([f"R={shlex.quote(str(self.root))}", *mounts,
                              f"exec chroot {as_user}$R /bin/sh -c {shlex.quote(inside)}"])
        environment = {"PATH": "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                       "TERM": os.environ.get("TERM", "dumb"), **self.environment}
        environment.update({name: os.environ[name] for name in os.environ if name.lower().endswith("_proxy")})
        return subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", script], env=environment).returncode


def bare_root(image, root, base):
    if base:
        subprocess.run(["cp", "-a", f"{base}/.", str(root)], check=True)
    elif "ubuntu" in image:
        lines = [f"deb http://archive.ubuntu.com/ubuntu noble{part} main universe" for part in ("", "-updates", "-security")]
        subprocess.run(["mmdebstrap", "--quiet", "--keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg",
                        "--variant=apt", "noble", str(root), *lines], check=True)
    else:
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", "bookworm", str(root)], check=True)


def copied(name, words, context, stage, stages):
    source_of = context
    if words[0].startswith("--from="):
        source_of = stages[words.pop(0)[len("--from="):]].root
    *sources, target = words
    place = within(stage.root, target if target.startswith("/") else f"{stage.folder}/{target}")
    for source in sources:
        found = within(source_of, source)
        if found.is_dir():
            shutil.copytree(found, place, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(*name))
        else:
            place.mkdir(parents=True, exist_ok=True) if target.endswith("/") else place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, place)


def main():
    own, _, command = " ".join(map(shlex.quote, sys.argv[1:])).partition(" -- ")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dockerfile", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--base")
    parser.add_argument("--bind", action="append", default=[])
    parser.add_argument("--arg", action="append", default=[])
    arguments = parser.parse_args(shlex.split(own))
    given = dict(pair.split("=", 1) for pair in arguments.arg)
    context = pathlib.Path(__file__).resolve().parents[2]
    ignored = [line.replace("**/", "") for line in (context / ".dockerignore").read_text().split()]
    stages, stage = {}, None
    for word, rest in instructions(arguments.dockerfile):
        print(f"{word} {rest}", flush=True)
        if word == "FROM":
            name = rest.split(" AS ")[1] if " AS " in rest else "last"
            root = (arguments.folder / name).resolve()
            root.mkdir(parents=True)
            bare_root(rest.split()[0], root, arguments.base)
            stage = stages[name] = Stage(root, arguments)
        elif word == "ARG":
            key, _, value = rest.partition("=")
            stage.environment[key] = given.get(key, value.strip('"'))
        elif word == "ENV":
            stage.environment.update(pair.split("=", 1) for pair in shlex.split(rest))
        elif word == "WORKDIR":
            stage.folder = rest
            within(stage.root, rest).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            stage.user = rest
        elif word == "COPY":
            copied(ignored, rest.split(), context, stage, stages)
        elif word == "RUN":
            binds = []
            for mount in re.findall(r"--mount=(\S+)", rest):
                part = dict(pair.split("=", 1) for pair in mount.split(","))
                binds.append((within(stages[part["from"]].root, part["source"]), part["target"]))
            line = re.sub(r"--mount=\S+\s*", "", rest)
            if stage.run(["/bin/sh", "-c", line], binds):
                sys.exit(f"failed: {word} {rest}")
        elif word == "CMD":
            stage.command = json.loads(rest)
        else:
            sys.exit(f"{word}: not known here")
    return stage.run(shlex.split(command) if command else stage.command)


if __name__ == "__main__":
    sys.exit(main())
