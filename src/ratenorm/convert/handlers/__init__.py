"""The handlers: one table for modules, one for functions, one for methods of tensors."""

from __future__ import annotations

from typing import Any

from ratenorm.convert.handlers import activations, combine, layers, pools, products, shapes
from ratenorm.convert.lower import Handler, ModuleHandler

MODULES: dict[type, ModuleHandler] = {
    **activations.MODULES,
    **layers.MODULES,
    **pools.MODULES,
    **shapes.MODULES,
}
FUNCTIONS: dict[Any, Handler] = {
    **activations.FUNCTIONS,
    **layers.FUNCTIONS,
    **pools.FUNCTIONS,
    **shapes.FUNCTIONS,
    **combine.FUNCTIONS,
    **products.FUNCTIONS,
}
METHODS: dict[Any, Handler] = {
    **activations.METHODS,
    **shapes.METHODS,
    **combine.METHODS,
    **pools.METHODS,
    **products.METHODS,
}
