# SPDX-License-Identifier: Apache-2.0
"""Tests that read data of ../shared (other implementations' numbers, tiny models) are skipped where
it is not: the repository stands alone. A test needs what its code, its fixtures and the functions
of its module and of other test modules name, as far as that is a path below support.SHARED."""
import pathlib, types

import support


def missing_for(item):
    """The path below ../shared that `item` needs and that does not exist, or None."""
    fixtures = [
        definition.func for definitions in item._fixtureinfo.name2fixturedefs.values()
        for definition in definitions]
    parameters = getattr(item, "callspec", None)
    values = list(parameters.params.values()) if parameters else []
    return next((path for path in [
        *paths_in(values), *paths_of([item.function, *fixtures])] if not path.exists()), None)


def paths_of(functions):
    """The paths of ../shared that functions name, and those that they call in their module."""
    seen, waiting = set(), list(functions)
    while waiting:
        function = waiting.pop()
        if not isinstance(function, types.FunctionType) or function in seen:
            continue
        seen.add(function)
        codes = [function.__code__]
        while codes:
            code = codes.pop()
            codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
            if {"support", "SHARED"} <= set(code.co_names):
                yield support.SHARED
            for name in code.co_names:
                value = function.__globals__.get(name)
                if isinstance(value, types.FunctionType):
                    if value.__module__ == function.__module__ or value.__module__.startswith(
                            "test_"):
                        waiting.append(value)
                else:
                    yield from paths_in(value)


def paths_in(value):
    """The paths below ../shared in a path, a text or a collection of them."""
    if isinstance(value, (list, tuple, set)):
        for part in value:
            yield from paths_in(part)
    elif isinstance(value, dict):
        yield from paths_in(list(value.values()))
    elif isinstance(value, pathlib.Path) and value.is_relative_to(support.SHARED):
        yield value
    elif isinstance(value, str) and str(support.SHARED) in value:
        yield support.SHARED
