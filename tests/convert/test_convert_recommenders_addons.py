"""Files and checkpoints of recommenders-addons, some of which its release 0.8.1 wrote."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from convert import deeprec_files
from fused_embedding.convert.destination import write
from fused_embedding.convert.source import open_source
from fused_embedding.convert.table import ConvertError

SAVED = pathlib.Path(__file__).parent / "recommenders_addons_saved"


def convert(source, destination, to="ours"):
    return write(
        open_source(str(source), [], None, 0.2), str(destination), to, {}, lambda name: None
    )


def write_files(folder, base, rows):
    """A shard as save_to_file_system writes it: bare keys and values."""
    os.makedirs(folder, exist_ok=True)
    np.array(list(rows), "<i8").tofile(folder / f"{base}-keys")
    np.array(list(rows.values()), "<f4").tofile(folder / f"{base}-values")


def files_of(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def content_of(path, name="users", dim=2):
    table = fe.get_embedding_variable(name, dim)
    fe.convert.restore(str(path), {name: table})
    content = table.export_content()
    slots = content.slot_names.numpy().astype(str).tolist()
    widths = np.split(content.slots.numpy(), len(slots), axis=1) if slots else []
    return (
        dict(zip(content.keys.numpy().tolist(), content.values.numpy().tolist(), strict=True)),
        {name: values.tolist() for name, values in zip(slots, widths, strict=True)},
    )


def test_round_trip_of_files_is_byte_equal(tmp_path):
    rows = {-4: [1, 2], 0: [3, 4], 2**62: [5, 6]}
    for name in ("a_users", "a_users_Adam_m", "a_users_Adam_v", "items"):
        write_files(tmp_path / "saved", f"{name}_mht_1of1_rank0_size1", rows)
    convert(tmp_path / "saved", tmp_path / "ours")
    values, slots = content_of(tmp_path / "ours", "a_users")
    assert values == rows
    assert slots == {slot: list(rows.values()) for slot in ("Adam/m", "Adam/v")}
    convert(tmp_path / "ours", tmp_path / "again", to="recommenders_addons")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "saved")


def test_shards_and_slots_that_lack_keys(tmp_path):
    write_files(tmp_path / "saved", "users_mht_1of3_rank0_size1", {3: [1, 2], 0: [3, 4]})
    write_files(tmp_path / "saved", "users_mht_2of3_rank0_size1", {1: [5, 6]})
    write_files(tmp_path / "saved", "users_mht_3of3_rank0_size1", {})
    write_files(
        tmp_path / "saved", "users_Adagrad_accumulator_mht_1of1_rank0_size1", {9: [1, 1], 1: [7, 8]}
    )
    lines = convert(tmp_path / "saved", tmp_path / "ours")
    values, slots = content_of(tmp_path / "ours")
    assert values == {0: [3, 4], 1: [5, 6], 3: [1, 2]}
    start = np.float32(0.2)
    assert slots == {"Adagrad/accumulator": [[start] * 2, [7, 8], [start] * 2]}
    assert "  slot Adagrad/accumulator: 2 rows had none and start at 0.2" in lines
    assert "  slot Adagrad/accumulator: 1 keys without a row were dropped" in lines


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "users_mht_1of2-keys").unlink(),
            "users_mht_1of2-keys' is missing",
        ),
        (lambda folder: (folder / "users_mht_2of2-values").unlink(), "2of2-values' is missing"),
        (
            lambda folder: [path.unlink() for path in folder.glob("*2of2*")],
            r"shards \[1\] of table 'users', from 0 on, are missing",
        ),
        (lambda folder: (folder / "users_mht_1of2-values").write_bytes(b"123"), "not 1 rows"),
        (lambda folder: (folder / "users_mht_1of2-keys").write_bytes(b"1" * 9), "not 1 rows"),
    ],
)
def test_damage_is_refused(tmp_path, damage, message):
    write_files(tmp_path / "saved", "users_mht_1of2", {1: [1, 2]})
    write_files(tmp_path / "saved", "users_mht_2of2", {2: [1, 2]})
    damage(tmp_path / "saved")
    with pytest.raises(ConvertError, match=message):
        convert(tmp_path / "saved", tmp_path / "ours")
    assert not list(tmp_path.glob("ours*"))


@pytest.mark.parametrize("saved", [(0, 1), (0,), (1,)])
def test_processes(tmp_path, saved):
    for rank in saved:
        write_files(tmp_path / "saved", f"users_mht_1of1_rank{rank}_size2", {rank: [1, 2]})
    if len(saved) == 2:
        convert(tmp_path / "saved", tmp_path / "ours")
        assert content_of(tmp_path / "ours")[0] == {0: [1, 2], 1: [1, 2]}
        return
    with pytest.raises(ConvertError, match=rf"shards \[{1 - saved[0]}\] of table 'users'"):
        convert(tmp_path / "saved", tmp_path / "ours")


def test_only_float32_has_files(tmp_path):
    table = fe.get_embedding_variable("users", 2, value_dtype=tf.float64)
    path = tf.train.Checkpoint(users=table).write(str(tmp_path / "ours"))
    with pytest.raises(ConvertError, match="written as float32 only"):
        convert(path, tmp_path / "saved", to="recommenders_addons")
    assert not (tmp_path / "saved").exists()


def test_names_that_files_do_not_tell_apart(tmp_path):
    tensors = deeprec_files.tensors_of("a/b", {1: deeprec_files.Row([1.0])})
    tensors |= deeprec_files.tensors_of("a_b", {1: deeprec_files.Row([1.0])})
    source = deeprec_files.write(tmp_path / "deeprec", tensors)
    with pytest.raises(ConvertError, match="do not tell / from _"):
        convert(source, tmp_path / "saved", to="recommenders_addons")


@pytest.mark.parametrize(("saved", "step"), [("files", 0), ("model.ckpt-3", 3)])
def test_what_recommenders_addons_saved(tmp_path, saved, step):
    """Two shards of a table and its slots, as 0.8.1 wrote them."""
    convert(SAVED / saved, tmp_path / "ours")
    want = json.loads((SAVED / "expected.json").read_text())
    values, slots = content_of(tmp_path / "ours", "model_users")
    keys = sorted(map(int, want["values"]))
    assert values == {key: want["values"][str(key)] for key in keys}
    for slot in ("Adam/m", "Adam/v"):
        assert slots[slot] == [want[slot][str(key)] for key in keys]
    written = deeprec_files.read(tmp_path / "ours")
    assert set(written["model_users-versions"]) == {step}
    assert ("beta1_power" in written) == (saved != "files")


def test_object_checkpoint_of_recommenders_addons(tmp_path):
    lines = convert(SAVED / "objects", tmp_path / "ours")
    values, _ = content_of(tmp_path / "ours", "model/items", dim=3)
    assert values == {1: [1, 2, 3], 4: [4, 5, 6], 9: [7, 8, 9]}
    assert any("tensors of tf.train.Checkpoint" in line for line in lines)
