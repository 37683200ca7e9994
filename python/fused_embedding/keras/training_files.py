"""Files from which the training of a Keras model goes on, made anew by Keras or by the program."""

import pathlib
from typing import Any

from fused_embedding.checkpoint.whole_file import whole_file

MODEL = "model.keras"
# The same but for what the model is made of, which Keras 3 asks subclassed models' get_config for.
WEIGHTS = "model.weights.h5"


def save(model: Any, folder: pathlib.Path) -> None:
    """Writes one of the two files, with tables, slots and optimizer; none of the other is left.

    Args:
        model: A model that is built.
        folder: Where to; made if there is none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, other = folder / MODEL, folder / WEIGHTS
    try:
        with whole_file(written) as unfinished:
            model.save(str(unfinished))
    except NotImplementedError:  # of the model's get_config, or of that of one of its layers
        written, other = other, written
        with whole_file(written) as unfinished:
            model.save_weights(str(unfinished))
    other.unlink(missing_ok=True)


def find(folder: pathlib.Path) -> pathlib.Path | None:
    """The file that `save` left in a folder, if any."""
    paths = (folder / name for name in (MODEL, WEIGHTS))
    return next((path for path in paths if path.is_file()), None)


def load_into(model: Any, path: pathlib.Path) -> None:
    """Gives a model the weights, tables and slots of a file, and the optimizer's state.

    Args:
        model: One like that which was saved, compiled if its training is to go on.
        path: One of the two files.

    Raises:
        ValueError: If the model is not built, or its weights have other shapes.
    """
    if not model.built:
        raise ValueError(
            f"the model {model.name!r} was given to load_model before it has weights; call it on a "
            "batch of ids first"
        )
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        optimizer.build(model.trainable_variables)  # else Keras passes over its state
    model.load_weights(str(path))
