"""Conversions of whole files: by command and from Python, into and out of runs, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from annotated_twice import spec_of
from clips import small_world, write_clip
from label_samples import SIZE, masks
from timecycle.api.conversion import convert
from timecycle.cli.main import main
from timecycle.errors import LabelError, OutputError, SettingsError
from timecycle.formats.reading import read_any
from timecycle.formats.registry import FORMATS, read_file, write_file
from timecycle.formats.video_labels import VideoFacts, VideoLabels, facts_of
from timecycle.labels import Masks
from timecycle.review.corrections import correct, undo
from timecycle.runs.opened import Run
from timecycle.runs.run import run
from timecycle.video import open_video

pytest.importorskip("pycocotools")


@pytest.fixture(scope="module")
def world():
    return small_world()


@pytest.fixture(scope="module")
def spec(world):
    return spec_of(world, names={"1": "Müllers Zelle"}, formats=("coco", "ytvis"))


@pytest.fixture(scope="module")
def template(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "out"
    run(spec, folder)
    return folder


@pytest.fixture
def out(template, tmp_path):
    return shutil.copytree(template, tmp_path / "out")


def same_as_run(labels: VideoLabels, folder) -> bool:
    done = Run(folder)
    return set(labels.labels) == set(done.labels) and all(
        np.array_equal(labels.labels[index].ids, done.labels[index].ids) for index in done.labels
    )


def test_a_run_writes_the_formats_it_was_asked_for(template):
    for name in ("coco", "ytvis"):
        exported = read_file(template / "exports" / f"{name}.json")
        assert same_as_run(exported, template)
        assert exported.names == {"1": "Müllers Zelle"}
        assert (exported.video.frames, exported.video.size) == (12, (64, 96))
        assert exported.video.fps == pytest.approx(12.5)


def test_progress_counts_frames(template, tmp_path):
    told = []
    convert(template, tmp_path / "labels.xml", progress=lambda done, total: told.append((done, total)))
    assert told[0] == (1, 12)
    assert told[-1] == (12, 12)


def test_a_run_is_converted_with_its_confidence_and_states(template, tmp_path):
    done = convert(template, tmp_path / "labels.json")
    assert (done.source_format, done.target_format, done.frames) == ("run", "coco", 12)
    known = read_file(tmp_path / "labels.json").known
    for index, objects in Run(template).confidence.items():
        for name, one in objects.items():
            if name in known[index]:  # objects that are not on a frame have no annotation there
                assert known[index][name].confidence == pytest.approx(one.confidence, abs=1e-4)
                assert (known[index][name].state, known[index][name].annotated) == (one.state, one.annotated)


def test_corrections_and_undo_renew_the_exports(out, spec, world):
    before = (out / "exports" / "coco.json").read_bytes()
    correct(out, {5: Masks(np.zeros_like(world.mask(5)), exhaustive=True)}, video=spec.video, encoder=spec.encoder)
    assert same_as_run(read_file(out / "exports" / "coco.json"), out)
    assert (out / "exports" / "coco.json").read_bytes() != before
    undo(out)
    assert (out / "exports" / "coco.json").read_bytes() == before


def test_formats_are_refused_before_any_work(spec, tmp_path):
    with pytest.raises(SettingsError, match="no format 'word'"):
        run(replace(spec, formats=("word",)), tmp_path / "out")
    with pytest.raises(LabelError, match="cannot be written from masks"):
        run(replace(spec, formats=("csv",)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_convert_and_propagate_and_correct_and_audit_by_command(world, tmp_path, capsys):
    clip = write_clip(tmp_path / "clip.mp4", world)
    facts = facts_of(open_video(clip))
    labels = VideoLabels(kind=Masks, labels={0: Masks(world.mask(0))}, video=facts, names={"1": "disc"})
    write_file(labels, tmp_path / "labels.json", name="coco")
    words = ["--preset", "fast", "--format", "ytvis", "-o", str(tmp_path / "out"), "--json"]
    assert main(["propagate", str(clip), str(tmp_path / "labels.json"), *words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["exports"] == [str(tmp_path / "out" / "exports" / "ytvis.json")]
    assert Run(tmp_path / "out").record["names"] == {"1": "disc"}
    assert main(["convert", str(tmp_path / "out"), str(tmp_path / "masks"), "--video", str(clip), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["to"] == "png"
    assert main(["audit", str(clip), str(tmp_path / "out" / "exports" / "ytvis.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frames"] == 12
    write_file(replace(labels, labels={5: Masks(world.mask(5))}), tmp_path / "fix.json", name="coco")
    assert main(["correct", str(tmp_path / "out"), str(tmp_path / "fix.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["corrections"][0]["frames"] == [5]


def test_labels_that_do_not_fit_the_video_are_refused_by_propagate(world, tmp_path, capsys):
    clip = write_clip(tmp_path / "clip.mp4", world)
    write_file(masks(), tmp_path / "labels.json", name="coco")
    assert main(["propagate", str(clip), str(tmp_path / "labels.json"), "-o", str(tmp_path / "out")]) == 2
    assert "7 frames but clip.mp4 has 12" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_empty_frames_of_another_tool_are_not_annotations_unless_exhaustive(tmp_path):
    labels = replace(masks(), known={})
    write_file(labels, tmp_path / "labels.json", name="coco")
    video = VideoFacts(name="clip.mp4", frames=7, size=SIZE)
    assert 3 not in read_any([tmp_path / "labels.json"], video).labels
    assert 3 in read_any([tmp_path / "labels.json"], video, every_frame=True).labels
    exhaustive = read_any([tmp_path / "labels.json"], video, exhaustive=True).labels
    assert exhaustive[3].exhaustive


def test_only_annotated_frames_are_propagated_where_a_file_tells_them_from_others(tmp_path):
    write_file(masks(), tmp_path / "labels.json", name="coco")
    assert list(read_any([tmp_path / "labels.json"], VideoFacts(name="clip.mp4", frames=7)).labels) == [0]


def test_existing_files_are_kept_unless_overwritten(tmp_path):
    write_file(masks(), tmp_path / "a.json", name="coco")
    (tmp_path / "b.json").write_text("mine")
    with pytest.raises(OutputError, match="already exists"):
        convert(tmp_path / "a.json", tmp_path / "b.json")
    convert(tmp_path / "a.json", tmp_path / "b.json", target_format="ytvis", overwrite=True)
    assert read_file(tmp_path / "b.json").video.frames == 7
    with pytest.raises(OutputError, match="itself"):
        convert(tmp_path / "a.json", tmp_path / "a.json", overwrite=True)
    convert(tmp_path / "a.json", tmp_path / "folder")
    with pytest.raises(OutputError, match="lies in"):
        convert(tmp_path / "folder", tmp_path / "folder" / "x.json")


def test_a_file_of_no_known_format_is_refused_with_the_names(tmp_path):
    (tmp_path / "labels.json").write_text('{"what": 1}')
    with pytest.raises(LabelError, match="of no known format; name its format with --from: png, csv, coco"):
        convert(tmp_path / "labels.json", tmp_path / "out.xyz")
    with pytest.raises(LabelError, match="there is no label file"):
        convert(tmp_path / "missing.json", tmp_path / "out")
    write_file(masks(), tmp_path / "labels.json", name="coco")
    with pytest.raises(SettingsError, match="does not say which format of masks to write; name the format with --to"):
        convert(tmp_path / "labels.json", tmp_path / "out.xyz")


def test_every_format_says_what_it_cannot_hold():
    for one in FORMATS.values():
        assert one.loses
        assert one.kinds
