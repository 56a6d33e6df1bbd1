"""A run is what it was made from: the same images, wherever they are and whenever they were written."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, save

import acr
from acr.cli import main
from acr.data.fingerprint import MOST_FILES, Part, fingerprint, image_digests
from acr.data.images import DataSet, ImageSet
from acr.data.loading import load_dataset
from acr.data.stream import Task
from acr.errors import InputError
from acr.launch import resume_run
from acr.report.groups import gather
from acr.runs.data_record import DATA, recorded_fingerprint, same_data
from acr.sweeps.sweep import find_jobs, superseded
from acr.training.checkpoint import CheckpointError
from acr.training.trainer import Interrupted, Trainer

SMALL = {"method": "er", "epochs": 1, "width": 2, "buffer_size": 4, "batch_size": 4, "replay_size": 4,
         "image_size": 8, "ood_every": "never", "threads": 1, "tasks": 2}  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore:.*run on other images")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "photos")


def make_photos(root: Path, first: int = 0) -> Path:
    for number, name in enumerate("abcd"):
        for i in range(5):
            save(root / name / f"{i}.png", picture(first + 10 * number + i, (8, 8)))
    return root


def train(photos: Path, **config: object) -> acr.Run:
    return acr.run(dataset=f"folder:{photos}", out=photos.parent / "runs", **{**SMALL, **config})


def interrupted(photos: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that stopped after its first task."""

    def stop(self: Trainer, task: Task) -> None:
        if task.index == 1:
            raise Interrupted(15, "stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "keep_confidence", stop)
        with pytest.raises(Interrupted):
            train(photos)
    (folder,) = (photos.parent / "runs").glob("folder-*")
    assert list((folder / "checkpoint").glob("step-*"))
    return folder


CHANGES = {
    "added": (lambda root: save(root / "a/new.png", picture(77, (8, 8))), "1 file added: a/new.png"),
    "replaced": (lambda root: save(root / "b/3.png", picture(78, (8, 8))), "1 file changed: b/3.png"),
    "removed": (lambda root: (root / "c/0.png").unlink(), "1 file removed: c/0.png"),
    "moved": (lambda root: (root / "c/0.png").rename(root / "d/zero.png"), "1 file added: d/zero.png; 1 file removed"),
    "another folder": (lambda root: (shutil.rmtree(root), make_photos(root, 1000)), "20 files changed: a/0.png"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_finished_run_on_other_images_is_not_this_run(photos: Path, change: str) -> None:
    before = train(photos)
    CHANGES[change][0](photos)
    with pytest.warns(UserWarning, match=CHANGES[change][1]):
        after = train(photos)
    assert after.folder.name == f"{before.folder.name}-2"
    assert recorded_fingerprint(before) != recorded_fingerprint(after)
    assert same_data(before, after) is False
    assert train(photos).folder == after.folder, "and on these images it is finished"


def test_the_newest_run_counts_among_those_on_the_same_images(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = train(photos)
    again = train(photos, fresh=True)
    original = (photos / "b/3.png").read_bytes()
    save(photos / "b/3.png", picture(78, (8, 8)))
    other = train(photos)
    assert len({first.folder, again.folder, other.folder}) == 3
    assert train(photos).folder == other.folder
    (photos / "b/3.png").write_bytes(original)  # the images are what they were: the newest run on them counts
    assert train(photos).folder == again.folder
    (now, counted) = superseded(find_jobs([again.config]))[0]
    assert (now.folder.name, counted.folder.name) == (first.folder.name, again.folder.name)

    gathered = gather([first, again, other])
    assert [problem.folder for problem in gathered.problems] == [first.folder]
    assert [len(group.seeds) for group in gathered.groups] == [1, 1]
    assert all("images" in group.label for group in gathered.groups)
    main(["compare", str(again.folder), str(other.folder)])
    assert "made from different images" in capsys.readouterr().out
    main(["compare", str(first.folder), str(again.folder)])
    assert "made from different images" not in capsys.readouterr().out


def test_it_is_found_again_when_the_old_images_are_back(photos: Path) -> None:
    first = train(photos)
    kept = (photos / "a/0.png").read_bytes()
    save(photos / "a/0.png", picture(500, (8, 8)))
    second = train(photos)
    (photos / "a/0.png").write_bytes(kept)
    assert train(photos).folder == first.folder != second.folder


def test_images_that_were_only_touched_or_copied_are_the_same(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = train(photos)
    for file in photos.rglob("*.png"):
        os.utime(file, (1, 1))
    assert train(photos).folder == first.folder
    shutil.copytree(photos, photos.parent / "copy")
    shutil.rmtree(photos)
    (photos.parent / "copy").rename(photos)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    main(["run", "--dataset", f"folder:{photos}", "--out", str(photos.parent / "runs"), "--quiet", *words])
    assert "already finished" in capsys.readouterr().out


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_is_not_resumed_on_other_images(photos: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(photos, monkeypatch)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    CHANGES[change][0](photos)
    with pytest.raises(InputError, match=CHANGES[change][1]) as refused:
        resume_run(folder)
    assert "Nothing was changed" in str(refused.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert train(photos).folder.name == f"{folder.name}-2", "acr run starts anew beside it"


def test_touched_images_can_be_resumed_on(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(photos, monkeypatch)
    for file in photos.rglob("*.png"):
        os.utime(file, (1, 1))
    assert resume_run(folder).finished


def test_a_checkpoint_of_other_images_is_not_loaded_even_without_the_record(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(photos, monkeypatch)
    (folder / DATA).unlink()
    save(photos / "a/0.png", picture(500, (8, 8)))
    with pytest.warns(UserWarning, match="Falling back"), pytest.raises(CheckpointError, match="from other images"):
        resume_run(folder)


def test_paths_are_stored_absolute_so_that_a_run_resumes_from_anywhere(
    photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = interrupted(Path("photos"), monkeypatch).resolve()
    assert acr.load_run(folder).values["dataset"] == f"folder:{photos}"
    (tmp_path / "elsewhere").mkdir()
    make_photos(tmp_path / "elsewhere/photos", 2000)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume_run(folder).finished


def test_another_folder_of_the_same_name_is_another_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    for number, place in enumerate(("one", "two")):
        make_photos(tmp_path / place / "photos", 100 * number)
        monkeypatch.chdir(tmp_path / place)
        folders.append(acr.run(dataset="folder:photos", out=tmp_path / "runs", **SMALL).folder)
    assert folders[0] != folders[1]
    assert all(folder.name.startswith("folder-photos-er-") for folder in folders)


def test_images_that_were_moved_can_be_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(photos, monkeypatch)
    moved = photos.rename(photos.with_name("moved"))
    with pytest.raises(InputError, match="no folder"):
        resume_run(folder)
    make_photos(photos.with_name("wrong"), 3000)
    with pytest.raises(InputError, match="20 files changed"):
        resume_run(folder, dataset=f"folder:{photos.with_name('wrong')}")
    assert resume_run(folder, dataset=f"folder:{moved}").finished


def test_runs_without_a_record_open_and_resume_and_say_so(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(photos, monkeypatch)
    (folder / DATA).unlink()
    for manifest in folder.glob("checkpoint/*/manifest.json"):
        content = json.loads(manifest.read_text())
        del content["data"]
        manifest.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="kept no record of the images"):
        run = train(photos)
    assert run.folder == folder
    assert json.loads((folder / DATA).read_text())["from_the_start"] is False
    content = json.loads((folder / "results.json").read_text())
    del content["data"]["fingerprint"]
    (folder / "results.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="kept no record of the images"):
        assert train(photos).folder == folder
    assert same_data(acr.load_run(folder), run) is None


def test_a_finished_run_whose_images_are_gone_is_still_found(photos: Path) -> None:
    run = train(photos)
    shutil.rmtree(photos)
    with pytest.warns(UserWarning, match="cannot be compared"):
        assert train(photos).folder == run.folder


def test_a_damaged_record_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(photos, monkeypatch)
    for content in ('{"schema": 1, "fingerprint": 3}', "[]", "\x00", '{"schema": 1, "fingerprint": "x", "files": []}'):
        (folder / DATA).write_text(content)
        with pytest.raises(InputError, match=r"data\.json"):
            resume_run(folder)


def test_the_fingerprint_is_that_of_pixels_labels_and_names() -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8)
    labels = np.array([0, 0, 0, 1, 1, 1])

    def digest(images=images, labels=labels, names=None) -> str:  # type: ignore[no-untyped-def]
        both = ImageSet(images, labels, names or {})
        return DataSet("memory", both, both, (0.5,) * 3, (0.2,) * 3).fingerprint.digest

    other = images.copy()
    other[3, 1, 2, 2] ^= 1
    same = [digest(), digest(images.copy()), digest(np.asfortranarray(images))]
    assert len(set(same)) == 1
    different = [digest(other), digest(images[::-1]), digest(labels=labels[::-1].copy()), digest(names={0: "cat"})]
    assert len({*same, *different}) == 1 + len(different)


def test_the_cache_and_memory_have_the_same_fingerprint(photos: Path) -> None:
    first = load_dataset(f"folder:{photos}", image_size=8)  # decoded now
    again = load_dataset(f"folder:{photos}", image_size=8)  # from the cache
    less = load_dataset(f"folder:{photos}", image_size=8, samples_per_class=1)
    assert first.fingerprint == again.fingerprint == less.fingerprint
    assert len(first.fingerprint.files) == 20


def test_many_files_are_described_by_class() -> None:
    count = MOST_FILES + 1
    digests = image_digests(np.zeros((count, 1, 1, 1), np.uint8))
    part = Part(digests, np.arange(count) % 7, [f"{i}.png" for i in range(count)])
    known = fingerprint({"train": part}, {0: "zero"})
    assert not known.files
    assert len(known.classes) == 7
    changed = digests.copy()
    changed[7] += 1
    later = fingerprint({"train": Part(changed, part.labels, part.files)}, {0: "zero"})
    assert known.differences(later) == "1 class changed: train/zero"


def test_sweeps_find_and_make_the_runs_of_the_images_as_they_are(photos: Path) -> None:
    from acr.runs.resolve import make_config
    from acr.sweeps.sweep import find_jobs, is_finished

    run = train(photos)
    configs = [make_config({**run.values, "out": run.folder.parent, "seed": seed}) for seed in (0, 1)]
    assert [is_finished(job) for job in find_jobs(configs)] == [True, False]
    save(photos / "a/0.png", picture(500, (8, 8)))
    jobs = find_jobs(configs)
    assert [is_finished(job) for job in jobs] == [False, False]
    assert jobs[0].folder.name == f"{run.folder.name}-2"
