"""Run the steps of a Dockerfile in a Debian system of its own, without a daemon: in a chroot, as root.

The system is made by mmdebstrap (or debootstrap) as Debian's images are. Every RUN is run as it is written, and COPY
takes only what .dockerignore leaves. Not done as a daemon would: layers, caches and the isolation of the network.
"""

import os
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dockerfile import Dockerfile, Instruction, expand, in_context

_HOST = "/host"  # where the clean root sees the files that this machine's pip is configured with
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MIRROR = "http://deb.debian.org/debian"


class StepError(Exception):
    """A step of the Dockerfile failed."""


@dataclass
class Root:
    """A folder with a whole system in it, and what the Dockerfile has set so far."""

    folder: Path
    variables: dict[str, str]  # of ENV
    workdir: str = "/"
    user: str = "root"
    arguments: dict[str, str] = field(default_factory=dict)  # of ARG

    def run(self, words: Sequence[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the root as its user, with nothing of this machine's environment."""
        pip = pip_settings()
        mounts = [f"mount -t proc proc {self.folder}/proc", f"mount --rbind /dev {self.folder}/dev"]
        for path in pip.files:
            target = shlex.quote(f"{self.folder}{_HOST}{path}")
            make = "mkdir -p" if path.is_dir() else f"mkdir -p $(dirname {target}) && touch"
            mounts.append(f"{make} {target} && mount --bind {shlex.quote(str(path))} {target}")
        home = "/tmp"  # noqa: S108  inside of the root, which is this test's own
        environment = {"PATH": _PATH, "HOME": home, **_proxies(), **pip.variables, **self.variables, **self.arguments}
        inner = ["chroot", f"--userspec={self.user}", str(self.folder), "env", "-i"]
        inner += [f"{name}={value}" for name, value in environment.items()]
        inner += ["/bin/sh", "-c", 'cd "$0" && exec "$@"', self.workdir, *words]
        # The mounts and the processes are of this one command and end with it.
        script = " && ".join([*mounts, f"exec {shlex.join(inner)}"])
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script],
            capture_output=True,
            text=True,
        )
        if check and done.returncode:
            raise StepError(f"{shlex.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done

    def path(self, inside: str) -> Path:
        """The place on this machine of a path in the root."""
        return self.folder / str(Path(self.workdir, inside)).lstrip("/")


def why_not() -> str:
    """Say why there can be no clean root here; empty: there can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "only root can make a clean root"
    if not bootstrap_tool():
        return "neither mmdebstrap nor debootstrap is installed"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        return "mounts are not allowed here"
    try:
        with urllib.request.urlopen(f"{_MIRROR}/dists/bookworm/Release", timeout=20):  # noqa: S310  a constant
            return ""
    except OSError as error:
        return f"Debian's packages cannot be reached: {error}"


def bootstrap_tool() -> str:
    return next(filter(None, map(shutil.which, ("mmdebstrap", "debootstrap"))), "")


def build(file: Dockerfile, *, context: Path, folder: Path, arguments: Mapping[str, str]) -> Root:
    """Run all stages in order; return the root of the last one."""
    roots: dict[str, Root] = {}
    for stage in file.stages.values():
        target = folder / stage.name
        if stage.base in roots:
            base = roots[stage.base]
            subprocess.run(["cp", "-a", base.folder, target], check=True)
            root = Root(target, dict(base.variables), base.workdir, base.user)
        else:
            _bootstrap(stage.base, target)
            root = Root(target, {"PATH": _PATH})
        for step in stage.steps:
            _run_step(root, step, roots=roots, context=context, arguments=arguments)
        roots[stage.name] = root
    return root


def _bootstrap(image: str, folder: Path) -> None:
    """Make the system that the image has: Debian's slim images are the least system of a release."""
    name, _, tag = image.partition(":")
    if name != "debian" or not tag.endswith("-slim"):
        raise StepError(f"no way is known to make a root as {image}: use debian:RELEASE-slim")
    tool = bootstrap_tool()
    # As in Debian's images: nothing is lost if the power fails while a throw-away system is installed.
    unsafe = ["--dpkgopt=force-unsafe-io"] if tool.endswith("mmdebstrap") else []
    words = [tool, "--variant=minbase", *unsafe, tag.removesuffix("-slim"), str(folder), _MIRROR]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise StepError(f"{shlex.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
    (folder / "etc" / "dpkg" / "dpkg.cfg.d" / "speedup").write_text("force-unsafe-io\n")


def _run_step(
    root: Root, step: Instruction, *, roots: Mapping[str, Root], context: Path, arguments: Mapping[str, str]
) -> None:
    match step.name, step.words:
        case "RUN", _:
            root.run(["/bin/sh", "-c", step.text])
        case "COPY", [source, *sources, target] if source.startswith("--from="):
            for one in sources:
                subprocess.run(["cp", "-a", roots[source[7:]].path(one), root.path(target)], check=True)
        case "COPY", [*sources, target]:
            for one in sources:
                _copy(context, one, root.path(target) if target != "./" else root.path(one))
        case "ENV", pairs:
            for name, _, value in (pair.partition("=") for pair in pairs):
                root.variables[name] = expand(value, root.variables)
        case "ARG", [argument]:
            name, _, value = argument.partition("=")
            root.arguments[name] = arguments.get(name, value)
        case "WORKDIR", [folder]:
            root.workdir = folder
            root.path(".").mkdir(parents=True, exist_ok=True)
        case "USER", [user]:
            root.user = user
        case (("ENTRYPOINT" | "CMD"), _):
            pass
        case _:
            raise StepError(f"unknown step: {step}")


def _copy(context: Path, source: str, target: Path) -> None:
    """Copy a file or a folder of the context, without what .dockerignore leaves out."""
    for path in context_files(context, source):
        copy = target / path.relative_to(context / source) if path != context / source else target
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def context_files(context: Path, source: str) -> list[Path]:
    """The files that one source of a COPY names."""
    ignore = (context / ".dockerignore").read_text()
    whole = context / source
    paths = [path for path in whole.rglob("*") if path.is_file()] if whole.is_dir() else [whole]
    return [path for path in paths if path.is_file() and in_context(path.relative_to(context).as_posix(), ignore)]


@dataclass(frozen=True)
class PipSettings:
    """How this machine's pip finds packages, for a pip in the clean root."""

    variables: Mapping[str, str]
    files: Sequence[Path]


def pip_settings() -> PipSettings:
    """Read pip's settings, with paths as they are in the root, and the files they name, which must be seen there."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    variables, files = {}, []
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        words = []
        for word in shlex.split(value)[0].split() if value.strip("'\"") else []:
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                files.append(path.parent if word.startswith("file://") else path)  # an index names files beside it
                words.append(word.replace(str(path), f"{_HOST}{path}"))
            else:
                words.append(word)
        variables[f"PIP_{name.rpartition('.')[2].upper().replace('-', '_')}"] = " ".join(words)
    return PipSettings(variables, sorted(set(files)))


def _proxies() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
