"""tf.io.parse_example, and all that end in its inner function: tf.io.parse_single_example, v1.

A dataset that is registered with a tf.data service meanwhile gets stock's op.
"""

from collections.abc import Callable
from typing import Any

from fused_embedding.acceleration.replacements import Replacement
from fused_embedding.acceleration.switch import Switch
from fused_embedding.input.contexts import reason_for_stock
from fused_embedding.input.dataset_service import with_stock_ops
from fused_embedding.input.parsing import parse_raw
from fused_embedding.ops.tf_private import data_service_ops, parsing_ops


def replacements(switch: Switch) -> list[Replacement]:
    """What is replaced while `switch` is on."""

    def make(stock: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(serialized: Any, names: Any, params: Any, name: str | None) -> Any:
            arguments = (serialized, names, params, name)
            return switch.run(
                "parse_example",
                lambda: parse_raw(*arguments),
                lambda: stock(*arguments),
                reason_for_stock,
            )

        return replaced

    def registering(stock: Callable[..., Any]) -> Callable[..., Any]:
        def registered(service: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            return stock(service, with_stock_ops(dataset), *args, **kwargs)

        return registered

    return [
        Replacement(parsing_ops, "_parse_example_raw", make),
        Replacement(data_service_ops, "_register_dataset", registering),
    ]
