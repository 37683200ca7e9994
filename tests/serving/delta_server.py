"""A server that answers from threads while deltas are applied.

Run as `python delta_server.py OPS FOLDER REQUEST.npz DELTA...`. It imports this package for the OPS
"fused", and not for "stock". Prints a line of JSON, and writes `FOLDER/answers.npz`: the distinct
answers that all threads got, and the one after all deltas.
"""

import importlib
import json
import sys
import threading

import numpy as np
import tensorflow as tf

NUM_THREADS = 3
NUM_BETWEEN = 20  # answers between deltas


def main():
    ops, folder, request, *deltas = sys.argv[1:]
    if ops == "fused":
        importlib.import_module("fused_embedding")
    loaded = tf.saved_model.load(folder)
    serve, apply = (loaded.signatures[name] for name in ("serving_default", "apply_delta"))
    given = {name: tf.constant(value) for name, value in np.load(request).items()}
    answers, errors, counts = {}, [], [0] * NUM_THREADS
    is_over, moved = threading.Event(), threading.Condition()

    def answer():
        return serve(**given)["rows"].numpy()

    def work(i):
        while not is_over.is_set():
            try:
                got = answer()
                answers.setdefault(got.tobytes(), got)
            except Exception as error:
                errors.append(repr(error))
            with moved:
                counts[i] += 1
                moved.notify()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    refused = []
    for delta in deltas:
        with moved:
            until = sum(counts) + NUM_BETWEEN
            moved.wait_for(lambda until=until: sum(counts) >= until, timeout=60)
        try:
            apply(path=tf.constant(delta))
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}")
    last = answer()
    is_over.set()
    for thread in threads:
        thread.join()
    np.savez(f"{folder}/answers.npz", last=last, all=np.stack(list(answers.values())))
    modules = [name for name in sys.modules if "fused_embedding" in name]
    print(json.dumps({"errors": errors, "refused": refused, "counts": counts, "modules": modules}))


main()
