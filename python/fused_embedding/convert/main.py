"""`python -m fused_embedding convert`: tables from one format of checkpoints to another."""

from collections.abc import Sequence

from absl import flags, logging

from fused_embedding.convert import destination
from fused_embedding.convert.source import Source, open_source
from fused_embedding.convert.table import ConvertError
from fused_embedding.terminal import printable, progress

_TO = flags.DEFINE_enum(
    "to",
    "ours",
    destination.FORMATS,
    "What reads the destination: tf.compat.v1.train.Saver and fe.convert.restore (ours), DeepRec, "
    "stock variables (dense), or load_from_file_system of recommenders-addons.",
)
_TABLES = flags.DEFINE_list("tables", [], "Dense variables of the source that become tables.")
_NUM_ROWS = flags.DEFINE_list(
    "num_rows", [], "For --to=dense: rows of the variables, as ROWS or NAME=ROWS,NAME=ROWS."
)
_INCREMENTAL = flags.DEFINE_string(
    "incremental", None, "DeepRec's incremental checkpoint that was saved after the source."
)
_ACCUMULATOR = flags.DEFINE_float(
    "initial_accumulator_value",
    0.1,
    "Where Adagrad's and Ftrl's accumulators of new keys start: the optimizer's argument.",
    lower_bound=0.0,
)


def main(argv: Sequence[str]) -> int:
    """Converts; the exit status is 0, or 2 for what cannot be converted."""
    if len(argv) != 3:
        logging.error("usage: fused-embedding convert SOURCE DESTINATION [--to=FORMAT]")
        return 2
    try:
        num_rows = _parse_num_rows(_NUM_ROWS.value)
        source = open_source(argv[1], _TABLES.value, _INCREMENTAL.value, _ACCUMULATOR.value)
        lines = _convert(source, argv[2], num_rows)
    except (ConvertError, OSError) as error:
        logging.error("%s", printable(str(error)))
        return 2
    print("\n".join([*map(printable, lines), f"written: {argv[2]}"]))
    return 0


def _convert(source: Source, path: str, num_rows: dict[str, int]) -> list[str]:
    total = len(source.tables) + len(source.others)
    with progress(total, "tensor", "converted") as bar:
        return destination.write(source, path, _TO.value, num_rows, bar.advance)


def _parse_num_rows(given: Sequence[str]) -> dict[str, int]:
    """Rows by name; by "" what is for all."""
    parsed = {}
    for one in given:
        name, _, number = one.rpartition("=")
        if not number.isdecimal() or int(number) < 1:
            raise ConvertError(f"--num_rows={one} must be ROWS or NAME=ROWS, with ROWS > 0")
        parsed[name] = int(number)
    return parsed
