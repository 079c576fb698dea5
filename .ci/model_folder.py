"""Write the folder of an encoder as the Hugging Face Hub expects it: model.safetensors, config.json and README.md.

    python .ci/model_folder.py WEIGHTS.safetensors -o FOLDER [--hub ORGANISATION/NAME]
    hf upload ORGANISATION/NAME FOLDER

The card beside the weights says what they are. What docs/model.md says about these weights follows.
Nothing is uploaded here.
"""

import argparse
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from timecycle.errors import TimecycleError
from timecycle.evaluation.reporting.report import read_report
from timecycle.model.hub import from_pretrained, save_pretrained
from timecycle.model.weights import Card, read_card, verify_weights
from timecycle.version import __version__

ROOT = Path(__file__).parents[1]
HUB_LICENCES = ("apache-2.0", "mit", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0")
PAPER = "1903.07593"  # on arXiv; the Hub links a model to the paper that a tag names
# Results that the Hub shows beside a model: task, benchmark, its id, the score in the report, what it is, and how the
# names of the reports begin, which benchmarks/evaluate.py writes.
SCORES = (
    ("image-segmentation", "DAVIS-2016 val", "davis2016", "JF", "J&F, default, 480p", "davis2016_480p_default"),
    ("image-segmentation", "DAVIS-2016 val", "davis2016", "JF", "J&F, plain, 480p", "davis2016_480p"),
    ("keypoint-detection", "BADJA", "badja", "PCK@0.2", "PCK@0.2, plain, 240p", "badja_240p"),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Write the folder of an encoder as the Hub expects it.")
    arguments.add_argument("weights", type=Path, help="a .safetensors file with its card (.json) beside it")
    arguments.add_argument("-o", "--output", type=Path, required=True, help="the folder to write")
    arguments.add_argument("--hub", default="", metavar="ORGANISATION/NAME", help="where it will be on the Hub")
    given = arguments.parse_args()
    try:
        write_folder(given.weights, given.output, hub=given.hub)
    except (TimecycleError, ValueError) as error:
        sys.exit(f"model_folder: {error}")
    print(f"{given.output}: upload it with: hf upload {given.hub or 'ORGANISATION/NAME'} {given.output}")


def write_folder(weights: Path, folder: Path, *, hub: str = "") -> None:
    """Write model.safetensors, config.json and README.md of verified weights."""
    card = read_card(weights)
    if card is None:
        raise ValueError(f"{weights} has no card; put {weights.with_suffix('.json').name} beside it")
    verify_weights(weights)
    name = re.sub(r"-[0-9a-f]{8}$", "", weights.stem)  # without the checksum
    readme = model_card(name, card, hub=hub)
    save_pretrained(from_pretrained(weights), folder, card)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def model_card(name: str, card: Card, *, hub: str) -> str:
    """Return the README.md of a model: the front matter that the Hub reads, then what a person wants to know."""
    encoder = hub or "folder/   # the files of this page, downloaded"
    licence = card.licence.partition(":")[0].strip().lower()
    if licence not in HUB_LICENCES:
        raise ValueError(
            f"the card's licence begins with {licence!r}, which the Hub does not know; "
            f"begin it with one of {', '.join(HUB_LICENCES)}"
        )
    matter = {
        "license": licence,
        "library_name": "timecycle",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["video", "correspondence", "label-propagation", "self-supervised", f"arxiv:{PAPER}"],
    }
    if results := measured(name, card):
        matter |= {"metrics": [*dict.fromkeys(one["metrics"][0]["type"] for one in results)]}
        matter |= {"model-index": [{"name": name, "results": results}]}
    rows = {
        "architecture": f"{card.encoder.architecture} up to {card.encoder.last}",
        "trained on": card.trained_on,
        "training": card.notes,
        "licence": card.licence,
    }
    table = "\n".join(f"| {what} | {value} |" for what, value in rows.items() if value)
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in matter.items())  # JSON is YAML
    return f"""---
{lines}
---

# {name}

An encoder for propagating annotations through video: masks, keypoints, parts, texture and dense coordinates, from a few
annotated frames to every frame.

```
pip install 'timecycle[hub]'
timecycle propagate dog.mp4 first.png -o out --encoder {encoder}
```

| | |
| --- | --- |
{table}

Written by timecycle {__version__}. The method: Wang, Jabri and Efros, Learning Correspondence from the
Cycle-consistency of Time, CVPR 2019 ([arXiv:{PAPER}](https://arxiv.org/abs/{PAPER})).
{page_about(name)}{attribution(card)}"""


def measured(name: str, card: Card) -> list[dict[str, Any]]:
    """Return the results of exactly these weights as the Hub's `model-index` has them."""
    results = []
    for task, benchmark, dataset, score, words, prefix in SCORES:
        path = ROOT / "benchmarks" / "results" / f"{prefix}_{name.replace('-', '_')}.json"
        if not path.is_file():
            continue
        report = read_report(path)
        if report.weights_sha256 != card.sha256:
            raise ValueError(f"{path} was measured with other weights; measure again: benchmarks/evaluate.py")
        value = round(100 * report.scores[score], 1)
        results.append(
            {
                "task": {"type": task, "name": "Label propagation from the first frame"},
                "dataset": {"type": dataset, "name": benchmark},
                "metrics": [{"type": words.partition(",")[0].lower(), "name": words, "value": value}],
            }
        )
    return results


def attribution(card: Card) -> str:
    """Return the section on the footage and its owners, of weights whose card names THIRD_PARTY_NOTICES."""
    if "THIRD_PARTY_NOTICES" not in card.trained_on:
        return ""
    notices = (ROOT / "THIRD_PARTY_NOTICES").read_text(encoding="utf-8")
    _, *parts = re.split(r"^(.+)\n-{3,}\n", notices, flags=re.MULTILINE)
    heading, text = next(part for part in zip(parts[::2], parts[1::2], strict=True) if part[0].startswith("Footage"))
    return f"\n## {heading}\n\n```text\n{text.strip()}\n```\n"


def page_about(name: str) -> str:
    """Return what docs/model.md says about these weights, with links that work elsewhere.

    That is the body of the section named after them; of the weights that the page itself is named after, all sections
    but those named after other weights.
    """
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    top, *parts = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if name in sections:
        text = f"\n{sections[name].strip()}\n"
    elif top.startswith(f"# {name}\n"):
        own = {title: body for title, body in sections.items() if not re.fullmatch(r"timecycle-v\d+", title)}
        text = "".join(f"\n## {title}\n\n{body.strip()}\n" for title, body in own.items())
    else:
        return ""
    text = re.sub(r"!\[[^]]*\]\([^)]*\)\n*|<!-- .*? -->\n", "", text)  # pictures and marks of generated tables
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    repository = urls.get("Repository", "").rstrip("/")

    def link(found: re.Match[str]) -> str:
        text, target = found.groups()
        if target.startswith("https://"):
            return found[0]
        page = "model.md" if target.startswith("#") else ""
        return f"[{text}]({repository}/blob/v{__version__}/docs/{page}{target})" if repository else text

    return re.sub(r"\[([^]]*)\]\(([^)]+)\)", link, text)


if __name__ == "__main__":
    main()
