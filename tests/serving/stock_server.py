"""A server without this package: loads SavedModels and answers, a line of JSON each way.

Run as `python stock_server.py [LIBRARY]`; a library of ops is loaded, and nothing else of it.
"""

import functools
import json
import pathlib
import sys
import traceback

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

v1 = tf.compat.v1
SIGNATURE = "serving_default"


def op_types(folder):
    """Of all nodes, in graphs and functions."""
    model = saved_model_pb2.SavedModel()
    with open(f"{folder}/saved_model.pb", "rb") as file:
        model.ParseFromString(file.read())
    graph = model.meta_graphs[0].graph_def
    functions = [function.node_def for function in graph.library.function]
    return sorted({node.op for nodes in [graph.node, *functions] for node in nodes})


@functools.lru_cache(maxsize=1)
def model_of(folder, _time):
    """The SavedModel, which is loaded once for requests in turn until it is written again."""
    return tf.saved_model.load(folder)


def serve(folder, given, loader):
    """Outputs by name."""
    if loader == "v2":
        time = (pathlib.Path(folder) / "saved_model.pb").stat().st_mtime_ns
        function = model_of(folder, time).signatures[SIGNATURE]
        outputs = function(**{name: tf.constant(value) for name, value in given.items()})
        return {name: output.numpy() for name, output in outputs.items()}
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, [tf.saved_model.SERVING], folder)
        signature = loaded.signature_def[SIGNATURE]
        feed = {signature.inputs[name].name: value for name, value in given.items()}
        return session.run({name: o.name for name, o in signature.outputs.items()}, feed)


def main():
    if sys.argv[1:]:
        tf.load_op_library(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        answer = {}
        try:
            given = dict(np.load(request["given"]))
            outputs = serve(request["folder"], given, request["loader"])
            np.savez(request["outputs"], **outputs)
            answer["ops"] = op_types(request["folder"])
        except Exception:
            answer["error"] = traceback.format_exc()
        answer["modules"] = [name for name in sys.modules if "fused_embedding" in name]
        print(json.dumps(answer), flush=True)


main()
