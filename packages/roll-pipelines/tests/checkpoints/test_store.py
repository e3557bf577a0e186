"""Checkpoints exist whole or not at all."""

from pathlib import Path

import pytest

from roll_pipelines.checkpoints import (
    CheckpointNotFoundError,
    CheckpointStore,
    Uploader,
    UploadError,
    resume_step,
)


def written(store: CheckpointStore, step: int, text: str = "weights") -> Path:
    staging = store.stage(step)
    (staging / "role").mkdir()
    (staging / "role" / "weights.bin").write_text(f"{text} of step {step}")
    return store.commit(step)


def test_a_checkpoint_is_invisible_until_it_is_committed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    (store.stage(3) / "weights.bin").write_text("half")

    assert store.steps() == []
    with pytest.raises(CheckpointNotFoundError, match="no whole checkpoint"):
        store.find(True)


def test_the_newest_whole_checkpoint_is_found_and_named_by_the_pointer(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    written(store, 9)
    newest = written(store, 10)

    assert store.find(True) == newest
    assert resume_step(newest) == 10
    assert (tmp_path / "latest").read_text().strip() == newest.name


@pytest.mark.parametrize("damage", ["shorten", "change", "remove", "manifest", "no manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_said_so(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(tmp_path)
    before, newest = written(store, 1), written(store, 2)
    weights, manifest = newest / "role" / "weights.bin", newest / "manifest.json"
    match damage:
        case "shorten":
            weights.write_text("w")
        case "change":
            weights.write_text(weights.read_text().replace("2", "3"))
        case "remove":
            weights.unlink()
        case "manifest":
            manifest.write_text("{")
        case _:
            manifest.unlink()

    assert store.find(True) == before
    assert str(newest) in caplog.text


def test_a_damaged_checkpoint_that_was_named_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    (written(store, 1) / "role" / "weights.bin").unlink()

    with pytest.raises(CheckpointNotFoundError, match=r"weights\.bin is missing"):
        store.find(1)


def test_a_checkpoint_is_found_by_step_by_path_and_by_run_directory(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "run" / "checkpoints")
    first, second = written(store, 1), written(store, 2)
    elsewhere = CheckpointStore(tmp_path / "other")

    assert store.find(1) == first
    assert elsewhere.find(str(first)) == first
    assert elsewhere.find(str(tmp_path / "run")) == second
    assert store.find(False) is None


def test_a_missing_step_names_those_that_are_there(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    written(store, 4)

    with pytest.raises(CheckpointNotFoundError, match=r"steps with a checkpoint under .*: 4;"):
        store.find(5)


def test_the_newest_are_kept_and_left_overs_of_a_crash_are_removed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    (tmp_path / ".staging-0").mkdir(parents=True)
    for step in (1, 2, 10):
        written(store, step)

    assert store.steps() == [2, 10]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-2", "latest"]


def test_the_same_step_written_again_replaces_the_old_one(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    written(store, 1, "old")
    final = written(store, 1, "new")

    assert (final / "role" / "weights.bin").read_text() == "new of step 1"
    assert store.find(True) == final


@pytest.mark.parametrize("in_background", [True, False])
def test_a_checkpoint_is_copied_to_a_url(tmp_path: Path, in_background: bool) -> None:
    checkpoint = written(CheckpointStore(tmp_path / "run"), 1)
    target = CheckpointStore(tmp_path / "copy")
    uploader = Uploader(f"file://{tmp_path}/copy", in_background=in_background)
    uploader.upload(checkpoint)
    uploader.close()

    assert target.find(True) == tmp_path / "copy" / checkpoint.name


def upload_to_its_end(uploader: Uploader, checkpoint: Path) -> None:
    """Upload and close; the first of the two that comes after the end of the copy tells how it went."""
    uploader.upload(checkpoint)
    uploader.close()


def test_a_copy_that_fails_is_an_error(tmp_path: Path) -> None:
    checkpoint = written(CheckpointStore(tmp_path / "run"), 1)
    (tmp_path / "occupied").write_text("a file where a directory is needed")
    uploader = Uploader(str(tmp_path / "occupied" / "copy"))

    with pytest.raises(UploadError, match="checkpoint-1 was not copied"):
        upload_to_its_end(uploader, checkpoint)
