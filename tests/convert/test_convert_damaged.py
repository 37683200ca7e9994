"""Sources that no program wrote: every one is converted or refused by an error that says why."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from convert import deeprec_files
from fused_embedding.convert import destination
from fused_embedding.convert.source import open_source
from fused_embedding.convert.table import ConvertError


def convert(path, to, tables=(), folder="out"):
    source = open_source(str(path), list(tables), None, 0.1)
    destination.write(source, str(path.parent / folder / "made"), to, {"": 50}, lambda name: None)


@pytest.fixture(scope="module")
def sources():
    """Tensors of small checkpoints, by format."""
    content = fe.get_embedding_variable("users", 2)
    content.upsert([1, 2, 3], np.ones([3, 2]))
    ours = {f"users-{k}": v.numpy() for k, v in content.export_content()._asdict().items()}
    ours |= {"users-bloom": np.zeros([1, 0], np.uint8), "users-bloom_layout": np.array(b"")}
    addons = {
        "users_mht_1of1-keys": np.int64([7]),
        "users_mht_1of1-values": np.float32([[1, 2]]),
    }
    rows = deeprec_files.random_rows(1, [3, 5])
    deeprec = deeprec_files.tensors_of("users", rows, 1)
    return {"ours": ours, "addons": addons, "deeprec": deeprec}


def with_other_shape(tensor):
    return np.reshape(tensor, [-1]) if np.ndim(tensor) != 1 else np.reshape(tensor, [1, -1])


def scalar(tensor):
    return np.reshape(tensor, [-1])[0] if np.size(tensor) else np.zeros([], np.int64)


MUTATIONS = {
    "scalar": scalar,
    "shape": with_other_shape,
    "no_rows": lambda tensor: np.zeros([0, *np.shape(tensor)[1:]], np.asarray(tensor).dtype),
    "bytes": lambda tensor: np.array([b"\xff\xfe"] * max(np.size(tensor), 1)),
    "twice": lambda tensor: np.concatenate([np.atleast_1d(tensor)] * 2),
    "double": lambda tensor: np.zeros(np.shape(tensor)),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("kind", ["ours", "addons", "deeprec"])
def test_every_tensor_of_another_kind(tmp_path, sources, kind, mutation):
    """Whether it can be converted or not: nothing but ConvertError ends it."""
    deeprec_files.write(str(tmp_path / "whole"), sources[kind])
    convert(tmp_path / "whole", "ours")
    for index, (name, tensor) in enumerate(sorted(sources[kind].items())):
        changed = sources[kind] | {name: MUTATIONS[mutation](tensor)}
        path = tmp_path / str(index) / "source"
        deeprec_files.write(str(path), changed)
        for to in ("ours", "deeprec", "dense"):
            with contextlib.suppress(ConvertError):
                convert(path, to, folder=to)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            ["user"],
            r"'user', which is not in '.*' \(is 'users' meant\?\); variables with rows there "
            "are: items, users$",
        ),
        (["x"], "'x', which is not in '.*'; variables with rows there are: items, users$"),
    ],
)
def test_names_of_no_variable(tmp_path, tables, message):
    """Slots could not be tables: they are not proposed."""
    names = ("users", "users/Adagrad", "items")
    deeprec_files.write(str(tmp_path / "dense"), {name: np.ones([4, 2]) for name in names})
    with pytest.raises(ConvertError, match=message):
        convert(tmp_path / "dense", "ours", tables)


def test_names_of_tables(tmp_path, sources):
    deeprec_files.write(str(tmp_path / "ours"), sources["ours"])
    with pytest.raises(
        ConvertError, match=r"'users', which is a table in .* leave it out of --tab"
    ):
        convert(tmp_path / "ours", "dense", ["users"])
    tf.io.gfile.makedirs(str(tmp_path / "files"))
    np.int64([7]).tofile(tmp_path / "files/users_mht_1of1-keys")
    np.float32([1, 2]).tofile(tmp_path / "files/users_mht_1of1-values")
    with pytest.raises(ConvertError, match=r"is a folder of tables .* leave out --tables"):
        convert(tmp_path / "files", "ours", ["users"])
