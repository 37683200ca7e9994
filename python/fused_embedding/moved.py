"""Modules that were in another place in 0.1: importing one says where it is. To go with 0.3."""

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

PACKAGE = "fused_embedding"
MODULES = {
    "_cuda": "ops.cuda",
    "_native": "ops.library",
    "_tf_dense_features": "columns.dense_features",
    "_tf_embedding_variable_column": "columns.keyed_column",
    "_tf_feature_column": "columns.fused_column",
    "_tf_input_layer": "columns.input_layer",
    "_tf_private": "ops.tf_private",
    "_tf_sequence_input_layer": "columns.sequence_input_layer",
    "checked_lookup": "lookup.checked",
    "checkpoint.content": "variable.content",
    "column_groups": "columns.groups",
    "demo.extras": "extras",
    "dynamicemb.files": "doors.dynamicemb.files",
    "dynamicemb.options": "doors.dynamicemb.options",
    "dynamicemb.table": "doors.dynamicemb.table",
    "embedding_options": "variable.options",
    "embedding_partitions": "variable.partitions",
    "embedding_scope": "variable.scope",
    "embedding_variable": "variable.embedding_variable",
    "estimator_mode": "variable.estimator_mode",
    "explanation": "inspection.explain",
    "fusion_check": "lookup.fusion_check",
    "gradients": "ops.gradients",
    "group_lookup": "lookup.group",
    "group_scope": "columns.group_scope",
    "group_signatures": "lookup.group_signatures",
    "inference": "variable.inference",
    "initializers": "variable.initializers",
    "lookup_names": "lookup.names",
    "lookup_options": "lookup.options",
    "one_embedding.embedding": "doors.one_embedding.embedding",
    "one_embedding.ftrl": "doors.one_embedding.ftrl",
    "one_embedding.options": "doors.one_embedding.options",
    "one_embedding.persistent_table": "doors.one_embedding.persistent_table",
    "one_embedding.snapshot": "doors.one_embedding.snapshot",
    "path_notes": "ops.path_notes",
    "placement": "ops.placement",
    "program_runner": "compat.run",
    "readiness": "variable.readiness",
    "saved_model": "variable.saved_model",
    "sparse_ids": "lookup.ids",
    "statistics_summary": "variable.statistics",
    "stock_signatures": "lookup.stock_signatures",
    "storage_options": "variable.storage_options",
    "table_dispatch": "lookup.dispatch",
    "table_reads": "variable.reads",
    "table_snapshot": "variable.snapshot",
    "tables": "lookup.tables",
    "train.checkpoint_manager": "checkpoint.checkpoint_manager",
    "train.control_flow": "ops.control_flow",
    "train.saver": "checkpoint.saver",
}


def refuse(old: str, new: str) -> NoReturn:
    """Raises the ImportError of a module that was moved.

    Args:
        old: Where it was, without the package.
        new: Where it is.
    """
    raise ImportError(
        f"{PACKAGE}.{old} was moved to {PACKAGE}.{new}; neither is a public name: those are "
        f"in `import {PACKAGE} as fe`, and stay where they are"
    )


class _Finder:
    """Python asks it for modules that it has not found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        package, _, old = name.partition(".")
        if package == PACKAGE and old in MODULES:
            refuse(old, MODULES[old])


def install() -> None:
    """Makes `import` name the new place of a moved module."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
