"""fe.StorageOption: what it refuses, and how it reaches the op that makes a table."""

import json
import pathlib
import re

import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding.variable import saved_model
from fused_embedding.variable.options import from_config, to_config
from fused_embedding.variable.storage_options import MIN_DRAM_BYTES

tf1 = tf.compat.v1
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/storage_tiers.md"
Type = fe.StorageType
IN_DRAM = {"storage_path": "", "dram_bytes": 0, "cache_strategy": "lfu"}


def on_ssd(path="/ssd", size=(1 << 30,), strategy=fe.CacheStrategy.LFU):
    return fe.EmbeddingVariableOption(
        storage_option=fe.StorageOption(Type.DRAM_SSD, path, size, strategy)
    )


def storage_of(op):
    """The attrs of a handle op that say where rows live."""
    values = {name: op.get_attr(name) for name in IN_DRAM}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def test_deeprecs_names_are_ours():
    assert Type.DRAM_SSD is Type.DRAM_SSDHASH
    assert Type.SSD is Type.SSDHASH


WITHOUT_TIER = [t for t in Type if t not in (Type.DRAM, Type.SSD, Type.DRAM_SSD, Type.HBM)]


@pytest.mark.parametrize("kind", [*WITHOUT_TIER, "DRAM_SSD"])
def test_other_tiers_are_refused(kind):
    name = getattr(kind, "name", kind)
    message = rf"storage_type = {name} was given, .* no PMEM or LevelDB .*HBM; .*DRAM_SSD with"
    with pytest.raises(NotImplementedError, match=message):
        fe.StorageOption(kind, "/ssd")


@pytest.mark.parametrize("kind", [None, Type.DRAM])
def test_without_an_ssd_there_is_no_folder(kind):
    with pytest.raises(ValueError, match=r"storage_path = '/x' .* or pass StorageType.DRAM_SSD"):
        fe.StorageOption(kind, "/x")
    sized = fe.StorageOption(kind, storage_size=[5, 6])  # DeepRec's programs give it
    assert (sized.is_on_ssd, sized.dram_bytes) == (False, 0)


@pytest.mark.parametrize("kind", [Type.SSD, Type.DRAM_SSD])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "HASH was given with storage_path = None, but .* pass the name"),
        ({"storage_path": ""}, ValueError, "storage_path = '', but rows on an SSD need a folder"),
        ({"storage_path": 3}, ValueError, "storage_path = 3, but rows on an SSD need a folder"),
        ({"storage_path": b"x"}, ValueError, "storage_path = b'x', but rows"),
        ({"storage_size": []}, ValueError, r"storage_size = \[\] was given with storage_type = "),
        ({"storage_size": [0]}, ValueError, r"\[0\] .* at least 16777216 \(16 MiB\)"),
        ({"storage_size": [MIN_DRAM_BYTES - 1, 1 << 40]}, ValueError, "its first must be the"),
        ({"storage_size": [1e9]}, ValueError, r"\[1000000000.0\] .* must be the bytes"),
        ({"cache_strategy": "lfu"}, TypeError, "CacheStrategy.LFU or LRU, got 'lfu'"),
    ],
)
def test_a_wrong_tier_is_an_error(kind, arguments, error, message):
    given = {"storage_path": "/ssd", **arguments} if arguments else {}
    with pytest.raises(error, match=message):
        fe.StorageOption(kind, **given)


def test_a_tier_has_no_other_bound():
    with pytest.raises(
        ValueError, match=r"max_capacity = 5 .* bounded in bytes .* by storage_size"
    ):
        fe.EmbeddingVariableOption(storage_option=on_ssd().storage_option, max_capacity=5)


@pytest.mark.parametrize("kind", [Type.SSD, Type.DRAM_SSD])
def test_a_tier_has_a_folder_and_a_budget(kind):
    option = fe.StorageOption(kind, pathlib.Path("/ssd/x"), [MIN_DRAM_BYTES, 7])
    assert (option.storage_path, option.dram_bytes) == ("/ssd/x", MIN_DRAM_BYTES)
    assert option.is_on_ssd
    assert fe.StorageOption(kind, "/ssd").dram_bytes == 1 << 30  # DeepRec's default
    config = json.loads(json.dumps(to_config(option, None)))
    assert from_config(config, None) == option
    assert hash(from_config(config, None)) == hash(option)


@pytest.mark.parametrize("strategy", list(fe.CacheStrategy))
def test_it_reaches_the_op_of_each_partition(strategy):
    with tf.Graph().as_default():
        option = on_ssd("/ssd/x", [1 << 33, 5], strategy)
        parts = fe.get_embedding_variable(
            "users", 4, ev_option=option, partitioner=tf1.fixed_size_partitioner(2)
        )
        expected = {
            "storage_path": "/ssd/x",
            "dram_bytes": 1 << 33,
            "cache_strategy": strategy.value,
        }
        assert [storage_of(part.op) for part in parts] == [expected] * 2
        names = [part.op.get_attr("storage_name") for part in parts]
        assert names == [b"users/part_0", b"users/part_1"]


def test_without_it_nothing_changes():
    in_dram = fe.EmbeddingVariableOption(
        storage_option=fe.StorageOption(Type.DRAM, None, [5], fe.CacheStrategy.LRU)
    )
    with tf.Graph().as_default():
        for name, option in (("none", None), ("dram", in_dram)):
            table = fe.get_embedding_variable(name, 4, ev_option=option)
            assert storage_of(table.op) == IN_DRAM
            assert table.op.get_attr("storage_name") == b""


def test_graphs_of_older_releases_load():
    with tf.Graph().as_default() as graph:
        table = fe.get_embedding_variable("users", 2, initializer=tf.ones_initializer())
        rows = tf.nn.embedding_lookup(table, tf.constant([5], tf.int64))
    old = graph.as_graph_def()
    (handle,) = (node for node in old.node if node.op == "EmbeddingVariableHandle")
    for name in (*IN_DRAM, "storage_name"):
        del handle.attr[name]
    with tf.Graph().as_default(), tf1.Session() as session:
        (imported,) = tf.import_graph_def(old, return_elements=[rows.name], name="")
        assert session.run(imported).tolist() == [[1.0, 1.0]]


def test_it_is_an_option_that_must_be_the_same():
    with tf.Graph().as_default(), tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
        fe.get_embedding_variable("users", 4, ev_option=on_ssd("/a"))
        fe.get_embedding_variable("users", 4, ev_option=on_ssd("/a"))
        with pytest.raises(ValueError, match="storage_path '/a' -> '/b'"):
            fe.get_embedding_variable("users", 4, ev_option=on_ssd("/b"))


def test_saved_models_name_no_folder():
    with tf.Graph().as_default():
        table = fe.get_embedding_variable(
            "users", 4, ev_option=on_ssd(strategy=fe.CacheStrategy.LRU)
        )
        saved = saved_model.config_of(table)["attributes"]
        assert {name: saved[name] for name in IN_DRAM} == IN_DRAM
        handles = {}
        saved_model.export_handle(table, handles)
        assert storage_of(handles[table.handle].op) == IN_DRAM


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    with tf.Graph().as_default():
        for example in re.findall("```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(compile(example, PAGE.name, "exec"), namespace)
        assert storage_of(namespace["table"].op) == {
            **IN_DRAM,
            "storage_path": "ssd/tables",
            "dram_bytes": 8 << 30,
        }
