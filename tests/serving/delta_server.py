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
    answering = Answering(lambda: serve(**given)["rows"].numpy())
    refused = []
    for delta in deltas:
        answering.wait_for_more()
        try:
            apply(path=tf.constant(delta))
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}")
    last = answering.answer()
    answering.stop()
    answers, errors, counts = answering.answers, answering.errors, answering.counts
    np.savez(f"{folder}/answers.npz", last=last, all=np.stack(list(answers.values())))
    modules = [name for name in sys.modules if "fused_embedding" in name]
    print(json.dumps({"errors": errors, "refused": refused, "counts": counts, "modules": modules}))


class Answering:
    """Threads that ask for the answer again and again, and what they got."""

    def __init__(self, answer):
        self.answer = answer
        self.answers, self.errors, self.counts = {}, [], [0] * NUM_THREADS
        self._is_over, self._moved = threading.Event(), threading.Condition()
        self._threads = [threading.Thread(target=self._work, args=(i,)) for i in range(NUM_THREADS)]
        for thread in self._threads:
            thread.start()

    def wait_for_more(self):
        """Until NUM_BETWEEN more answers have come."""
        with self._moved:
            until = sum(self.counts) + NUM_BETWEEN
            self._moved.wait_for(lambda: sum(self.counts) >= until, timeout=60)

    def stop(self):
        """Ends the threads."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _work(self, i):
        while not self._is_over.is_set():
            try:
                got = self.answer()
                self.answers.setdefault(got.tobytes(), got)
            except Exception as error:
                self.errors.append(repr(error))
            with self._moved:
                self.counts[i] += 1
                self._moved.notify()


main()
