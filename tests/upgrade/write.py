"""Writes files that later versions must load, and what they must compute: see README.md."""

import argparse
import pathlib
import tarfile
import tempfile

import models
import numpy as np
import tensorflow as tf

import fused_embedding as fe

v1 = tf.compat.v1
NAMES = {"users": "model/users", "items": "model/items"}  # in checkpoints of a Training


def write_expected(folder, **arrays):
    np.savez_compressed(folder / "expected.npz", **arrays)


def write_graph(folder, kind):
    """A checkpoint of a session with its MetaGraph: what Savers write."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(7)
        saver = models.build(kind)
        session.run(v1.global_variables_initializer())
        for _ in range(models.NUM_STEPS):
            models.run(session, "train")
            saver.save(session, str(folder / "model"), v1.train.get_global_step())
        write_expected(folder, **models.follow(session))
    (folder / "checkpoint").unlink()  # has the path of this folder
    for path in folder.glob("model-*"):
        if not path.name.startswith(f"model-{models.NUM_STEPS}."):
            path.unlink()


def write_checkpoint(folder, **storage):
    training = models.Training(**storage)
    for _ in range(models.NUM_STEPS):
        training.step()
    tf.train.Checkpoint(training=training).write(str(folder / "model"))
    write_expected(folder, **training.follow())


def write_tier(folder):
    """A checkpoint whose tables had their rows on an SSD."""
    with tempfile.TemporaryDirectory() as storage:
        option = fe.StorageOption(
            fe.StorageType.DRAM_SSD, storage_path=storage, storage_size=[16 << 20]
        )
        write_checkpoint(folder, storage_option=option)


def write_increments(folder):
    """The last of three incremental saves, of a tf.train.Checkpoint."""
    training = models.Training()
    manager = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(training=training), str(folder), max_to_keep=1
    )
    for step in range(3):
        training.step()
        training.model.items.erase([int(models.LARGE_KEYS[0, step % 2])])
        manager.save()
    write_expected(folder, **training.follow())


def write_saved_model(folder):
    training = models.Training()
    for _ in range(models.NUM_STEPS):
        training.step()
    tf.saved_model.save(training.model, str(folder / "model"), signatures=training.model.serve)
    write_expected(folder, **training.scores())


def write_serving(folder, ops):
    """An export, two deltas of it, and the save that a third is to be made of."""
    training = models.Training()
    training.step()
    training.step()
    manager = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(model=training.model), str(folder / "saves"), max_to_keep=1
    )
    manager.save()
    path = str(folder / "export")
    fe.export_for_serving(training.model, path, ops, signatures=training.model.serve)
    states, before = [training.scores()], None
    for number in (1, 2, 3):
        training.step()
        training.model.items.erase([int(models.LARGE_KEYS[0, number % 2])])
        saved = manager.save()
        states.append(training.scores())
        if number < 3:
            delta = str(folder / f"delta-{number}")
            fe.write_serving_delta(delta, path, saved, continues=before, names=NAMES)
            before = delta
    write_expected(folder, **{n: np.stack([one[n] for one in states]) for n in states[0]})


def write_keras(folder, name):
    keras = __import__(name)
    keras.utils.set_random_seed(5)
    model = models.keras_model(keras)
    models.keras_follow(model)
    model.save(folder / "model.keras")
    write_expected(folder, **models.keras_follow(model))


def write_all(folder):
    """Everything: of each case an archive of its files."""
    writers = {f"graph_{name}": (write_graph, kind) for name, kind in models.GRAPHS.items()}
    writers |= {f"serving_{ops}": (write_serving, ops) for ops in ("stock", "fused")}
    writers |= {name: (write_keras, name) for name in ("keras", "tf_keras")}
    writers |= {
        "checkpoint": (write_checkpoint,),
        "tier": (write_tier,),
        "increments": (write_increments,),
        "saved_model": (write_saved_model,),
    }
    for name, (write, *arguments) in writers.items():
        with tempfile.TemporaryDirectory() as files:
            write(pathlib.Path(files), *arguments)
            pack(pathlib.Path(files), folder / f"{name}.tar.xz")


def pack(files, archive):
    """Puts a folder into an archive without times and owners."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(files.rglob("*")):
            if path.is_file():
                entry = tarfile.TarInfo(str(path.relative_to(files)))
                entry.size = path.stat().st_size
                with path.open("rb") as file:
                    tar.addfile(entry, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="archives that are there are replaced")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write_all(folder)


if __name__ == "__main__":
    main()
