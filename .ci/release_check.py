"""The release checklist: everything that must be in place before a version is published. Fails if anything is missing.

    python .ci/release_check.py --dist DIST --model FOLDER... --site SITE [--tag v1.2.3]

DIST holds the sdist and the wheels, each FOLDER the bundled encoder that it is named after (.ci/model_folder.py), SITE
the pages (make docs). Without --tag the tag of the newest commit counts. It needs nothing but Python and git.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
X86_64_KERNELS = ("generic", "avx2", "avx512")
WHEELS = {  # the end of a wheel's name, and the variants of the kernel in it
    "py3-none-any": (),
    "py3-none-manylinux_*_x86_64": X86_64_KERNELS,
    "py3-none-manylinux_*_aarch64": ("generic",),
    "py3-none-macosx_*_arm64": ("generic",),
}
CONTENTS = (  # beginnings of names in every wheel
    "timecycle/py.typed",
    "timecycle/kernel/kernel.cpp",
    "timecycle/napari.yaml",
    "timecycle/presets/confidence.toml",
    "timecycle/presets/propagate/default.toml",
    "timecycle/ui/static/index.html",
    "timecycle/ui/static/main.js",
    "timecycle/weights/timecycle-v2-",
)
PLACEHOLDER = re.compile(r"\b(TODO|FIXME|XXX|TBD|OWNER/|(?<!no )placeholder)", re.IGNORECASE)
FROM_CHECKOUT = re.compile(r"pip install ['\"]?\.(?=[\[\s`]|$)")  # as a README says it until there is a release
FRONT_MATTER = ("license", "library_name", "pipeline_tag", "tags")  # what the Hub reads from a model's README.md


def main() -> None:
    arguments = argparse.ArgumentParser(description="Check that everything is in place for a release.")
    arguments.add_argument("--dist", type=Path, required=True, help="folder of the sdist and the wheels")
    arguments.add_argument("--model", type=Path, nargs="+", required=True, help="what .ci/model_folder.py wrote")
    arguments.add_argument("--site", type=Path, required=True, help="folder that `make docs` wrote")
    arguments.add_argument("--tag", help="the tag to publish; without it that of the newest commit")
    given = arguments.parse_args()
    failed = False
    for what, problems in check_all(ROOT, dist=given.dist, models=given.model, site=given.site, tag=given.tag):
        print(f"{'MISSING' if problems else 'ok     '}  {what}")
        for problem in problems:
            print(f"         {problem}")
        failed = failed or bool(problems)
    if failed:
        sys.exit("release_check: not ready; see what is missing above")
    print("release_check: ready")


def check_all(
    root: Path, *, dist: Path, models: list[Path], site: Path, tag: str | None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each check with the problems that it found."""
    version = read_version(root)
    yield "one version everywhere", list(check_version(root, version, tag))
    yield "clean tree", list(check_tree(root))
    yield "licences and notices", list(check_licences(root))
    yield "address of the repository", list(check_repository(root))
    yield "no placeholders", list(check_placeholders(root))
    yield "sdist", list(check_sdist(root, dist, version))
    yield "wheels", list(check_wheels(root, dist, version))
    yield "pages", [] if (site / "index.html").is_file() else [f"{site} has no index.html: make docs"]
    yield "model folders", list(check_models(root, models))


def read_version(root: Path) -> str:
    """Return the version of the source."""
    (version,) = re.findall(r'__version__ = "(.+)"', (root / "src/timecycle/version.py").read_text(encoding="utf-8"))
    return str(version)


def read_project(root: Path) -> dict[str, Any]:
    """Return the table [project] of pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def check_version(root: Path, version: str, tag: str | None) -> Iterator[str]:
    """Compare the version of the source with the tag, the changelog and the citation."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"version.py says {version}: a release has three numbers"
    tags = [tag] if tag else git(root, "tag", "--points-at", "HEAD").split()
    if tags != [f"v{version}"]:
        yield f"the tag is {' '.join(tags) or 'missing'}: git tag -s v{version}"
    headings = re.findall(r"^## \[(.+?)\](?: - (\S+))?", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    newest, date = headings[0] if headings else ("missing", "")
    if newest != version:
        yield f"the first heading of CHANGELOG.md is {newest}, not {version}"
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        yield f"CHANGELOG.md has no date for {newest}: write ## [{version}] - YYYY-MM-DD"
    for told in re.findall(r"version\s*= \{(.+?)\}", (root / "README.md").read_text(encoding="utf-8")):
        if told != version:
            yield f"the BibTeX in README.md says version {told}"
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    for key, value in (("version", version), ("date-released", date)):
        said = re.search(rf"^{key}: [\"']?([^\"'\n]+)", citation, re.MULTILINE)
        if said is None or said[1].strip() != value:
            yield f"CITATION.cff says {said[1] if said else 'nothing'} for {key}, not {value or 'a date'}"


def check_tree(root: Path) -> Iterator[str]:
    """Refuse files that are changed or unknown to git."""
    for line in git(root, "status", "--porcelain").splitlines():
        yield f"not committed: {line}"


def check_licences(root: Path) -> Iterator[str]:
    """Compare the licence of the package with its files and with the cards of the weights in it."""
    project = read_project(root)
    expression, files = str(project["license"]), project["license-files"]
    texts = [(root / name).read_text(encoding="utf-8") for name in files if (root / name).is_file()]
    if len(texts) != len(files):
        yield f"a file is missing among {', '.join(files)}"
    cards = sorted((root / "src/timecycle/weights").glob("*.json"))
    if not cards:
        yield "no card of the bundled weights in src/timecycle/weights"
    for card in cards:
        licence = json.loads(card.read_text(encoding="utf-8")).get("licence", "").partition(":")[0].strip()
        if licence not in expression.split(" AND "):
            yield f"{card.name} says {licence or 'no licence'}; the package says {expression}"
        elif not any(licence in text for text in texts) and licence != "Apache-2.0":
            yield f"{licence}, the licence of {card.name}, is in none of {', '.join(files)}"
    cited = read_citation_licences(root)
    if cited != [code := expression.partition(" AND ")[0]]:
        yield f"CITATION.cff says {', '.join(cited) or 'nothing'} for license; the code is under {code}"


def read_citation_licences(root: Path) -> list[str]:
    """Return the licences in CITATION.cff: one behind `license:`, or a list below it, which means a choice."""
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    found = re.search(r"^license:(.*(?:\n *- .*)*)", citation, re.MULTILINE)
    return re.findall(r"\w[\w.+-]*", re.sub(r"#.*", "", found[1])) if found else []


def check_repository(root: Path) -> Iterator[str]:
    """Ask for the address from which the README's links are made."""
    urls = read_project(root).get("urls", {})
    if not re.fullmatch(r"https://[\w.-]+/[\w.-]+/[\w.-]+", str(urls.get("Repository", ""))):
        yield "pyproject.toml: [project.urls] has no Repository; it is the address that the README's links are made of"


def check_placeholders(root: Path) -> Iterator[str]:
    """Look for words that stand for something to be written."""
    names = ("README.md", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
    for path in [*(root / name for name in names), *sorted((root / "docs").rglob("*.md"))]:
        if not path.is_file():
            yield f"{path.name} is missing"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if found := PLACEHOLDER.search(line):
                yield f"{path.relative_to(root)}:{number}: {found[0]}"


def check_sdist(root: Path, dist: Path, version: str) -> Iterator[str]:
    """Look into the one sdist."""
    path = dist / f"timecycle-{version}.tar.gz"
    if [path] != sorted(dist.glob("*.tar.gz")):
        yield f"{dist} does not hold exactly one sdist, {path.name}"
        return
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "hatch_build.py", "tests/test_packaging.py", "CHANGELOG.md", "CITATION.cff"):
        if name not in names:
            yield f"{path.name} lacks {name}"


def check_wheels(root: Path, dist: Path, version: str) -> Iterator[str]:
    """Look into every wheel: there is one for each platform, with its kernel, its licences and links that work."""
    expected = {path for end in WHEELS for path in dist.glob(f"timecycle-{version}-{end}.whl")}
    for path in sorted(set(dist.glob("*.whl")) - expected):
        yield f"{path.name} is not for this release"
    for end, variants in WHEELS.items():
        paths = sorted(dist.glob(f"timecycle-{version}-{end}.whl"))
        if len(paths) != 1:
            yield f"{len(paths)} wheels instead of one: timecycle-{version}-{end}.whl"
        for path in paths:
            with zipfile.ZipFile(path) as wheel:
                names = wheel.namelist()
                (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
                metadata = message_from_bytes(wheel.read(name))
            problems = [*check_contents(names, variants), *check_metadata(root, metadata, version)]
            for problem in problems:
                yield f"{path.name}: {problem}"


def check_contents(names: list[str], variants: tuple[str, ...]) -> Iterator[str]:
    """Compare the files of a wheel with what it must have."""
    for wanted in CONTENTS:
        if not any(name.startswith(wanted) for name in names):
            yield f"lacks {wanted}"
    kernels = {name for name in names if name.endswith((".so", ".dylib", ".dll"))}
    wanted_kernels = {f"timecycle/kernel/kernel_{variant}.so" for variant in variants}
    if kernels != wanted_kernels:
        yield f"has the compiled files {sorted(kernels)}, not {sorted(wanted_kernels)}"


def check_metadata(root: Path, metadata: Message, version: str) -> Iterator[str]:
    """Compare the metadata of a wheel, whose payload is the README, with the source."""
    project = read_project(root)
    files = metadata.get_all("License-File", [])
    if metadata["Version"] != version:
        yield f"its metadata says version {metadata['Version']}"
    if metadata["License-Expression"] != project["license"] or sorted(files) != sorted(project["license-files"]):
        yield f"its metadata says {metadata['License-Expression']} in {files}"
    readme = str(metadata.get_payload())
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", readme):
        yield f"its README has the relative link {target}, which leads nowhere on the package index"
        break  # one says it all
    if found := FROM_CHECKOUT.search(readme):
        yield f"its README says {found[0]}, which needs a checkout"


def check_models(root: Path, folders: list[Path]) -> Iterator[str]:
    """Look into the folders for the Hub, of which each bundled encoder has one of its name."""
    cards = sorted((root / "src/timecycle/weights").glob("*.json"))
    for name in dict.fromkeys(re.sub(r"-[0-9a-f]{8}$", "", card.stem) for card in cards):
        if name not in {folder.name for folder in folders}:
            yield f"--model lacks the folder of {name}: python .ci/model_folder.py WEIGHTS -o model/{name}"
    for folder in folders:
        yield from check_model(folder)


def check_model(folder: Path) -> Iterator[str]:
    """Look into a folder for the Hub: weights as their config says, and the front matter that it reads."""
    missing = [name for name in ("README.md", "config.json", "model.safetensors") if not (folder / name).is_file()]
    if missing:
        yield f"{folder} lacks {', '.join(missing)}: python .ci/model_folder.py WEIGHTS -o {folder}"
        return
    readme = (folder / "README.md").read_text(encoding="utf-8")
    matter = readme.split("---\n")[1] if readme.startswith("---\n") else ""
    for key in FRONT_MATTER:
        if not re.search(rf"^{key}: \S", matter, re.MULTILINE):
            yield f"the front matter of {folder / 'README.md'} has no {key}"
    if found := PLACEHOLDER.search(readme):
        yield f"{folder / 'README.md'}: {found[0]}"
    checksum = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if json.loads((folder / "config.json").read_text(encoding="utf-8")).get("sha256") != checksum:
        yield f"{folder / 'model.safetensors'} does not have the checksum in config.json"


def git(root: Path, *words: str) -> str:
    """Return what a git command prints."""
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
