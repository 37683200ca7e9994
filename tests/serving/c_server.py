"""A server in C, with TensorFlow's C library alone: neither the package nor Python's TensorFlow.

Run as `python c_server.py REQUEST.json`. The request names the library, the folder, a library of
ops, and the calls: each feeds tensors by name (a file of numpy, or a path for strings) and saves
the one that it fetches. Prints the modules that were loaded.
"""

import ctypes as c
import json
import sys

import numpy as np

TF_STRING = 7
DTYPES = {1: np.float32, 9: np.int64}


class Output(c.Structure):
    """TF_Output."""

    _fields_ = (("operation", c.c_void_p), ("index", c.c_int))


class Library:
    """The functions of TensorFlow's C library, which check their status."""

    def __init__(self, path):
        self._library = c.CDLL(path)
        self._status = self.call("TF_NewStatus")

    def call(self, name, *arguments, returns=c.c_void_p):
        function = self._library[name]
        function.restype = returns
        # Whole numbers that stand for pointers have 64 bits.
        return function(*(c.c_void_p(a) if isinstance(a, int) else a for a in arguments))

    def checked(self, name, *arguments, returns=c.c_void_p):
        result = self.call(name, *arguments, self._status, returns=returns)
        if self.call("TF_GetCode", self._status, returns=c.c_int):
            message = self.call("TF_Message", self._status, returns=c.c_char_p)
            raise RuntimeError(message.decode())
        return result

    def tensor(self, value):
        if isinstance(value, str):
            tensor = self.call("TF_AllocateTensor", c.c_int(TF_STRING), None, c.c_int(0), 24)
            data = self.call("TF_TensorData", tensor)
            self.call("TF_StringInit", data, returns=None)
            encoded = value.encode()
            self.call("TF_StringCopy", data, encoded, c.c_size_t(len(encoded)), returns=None)
            return tensor
        dtype = next(number for number, dtype in DTYPES.items() if dtype == value.dtype)
        dims = (c.c_int64 * value.ndim)(*value.shape)
        tensor = self.call(
            "TF_AllocateTensor", c.c_int(dtype), dims, c.c_int(value.ndim), value.nbytes
        )
        data = np.ascontiguousarray(value)
        c.memmove(self.call("TF_TensorData", tensor), data.ctypes.data, value.nbytes)
        return tensor

    def array(self, tensor):
        num_dims = self.call("TF_NumDims", tensor, returns=c.c_int)
        dims = map(c.c_int, range(num_dims))
        shape = [self.call("TF_Dim", tensor, dim, returns=c.c_int64) for dim in dims]
        array = np.empty(shape, DTYPES[self.call("TF_TensorType", tensor, returns=c.c_int)])
        c.memmove(array.ctypes.data, self.call("TF_TensorData", tensor), array.nbytes)
        return array


class Session:
    """A loaded SavedModel."""

    def __init__(self, library, folder):
        self._tf = library
        self._graph = library.call("TF_NewGraph")
        tags = (c.c_char_p * 1)(b"serve")
        options = library.call("TF_NewSessionOptions")
        self._session = library.checked(
            "TF_LoadSessionFromSavedModel",
            options,
            None,
            folder.encode(),
            tags,
            c.c_int(1),
            self._graph,
            None,
        )

    def run(self, feeds, fetch):
        """The array of a tensor, from arrays or strings by tensor."""
        inputs = (Output * len(feeds))(*map(self._output, feeds))
        values = (c.c_void_p * len(feeds))(*map(self._tf.tensor, feeds.values()))
        outputs, results = (Output * 1)(self._output(fetch)), (c.c_void_p * 1)()
        given = (inputs, values, c.c_int(len(feeds)), outputs, results, c.c_int(1))
        self._tf.checked(
            "TF_SessionRun", self._session, None, *given, None, c.c_int(0), None, returns=None
        )
        return self._tf.array(results[0])

    def _output(self, name):
        operation, index = name.split(":")
        found = self._tf.call("TF_GraphOperationByName", self._graph, operation.encode())
        assert found, name
        return Output(found, int(index))


def main():
    with open(sys.argv[1]) as file:
        request = json.load(file)
    library = Library(request["tensorflow"])
    for ops in request["ops"]:
        library.checked("TF_LoadLibrary", ops.encode())
    session = Session(library, request["folder"])
    given = dict(np.load(request["given"]))
    for call in request["calls"]:
        feeds = {tensor: given.get(name, name) for tensor, name in call["feeds"].items()}
        np.save(call["output"], session.run(feeds, call["fetch"]))
    unwanted = ("tensorflow", "fused_embedding")
    print(json.dumps([name for name in sys.modules if name.split(".")[0] in unwanted]))


main()
