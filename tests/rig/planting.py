# SPDX-License-Identifier: Apache-2.0
"""Copies of sources of quern that have mistakes in them, for a simulator to find. A text that is
replaced must occur once, so that the list follows the code."""
import pathlib, sys


def plant(folder, names, mistakes, declaration):
    """`mistakes`: the file, its text, and the text in its place. The program's arguments are the
    root of the sources and the folder of the copies; `folder` and `names` are below src/service."""
    root, out = (pathlib.Path(word) for word in sys.argv[1:])
    for name in names:
        text = (root / "src/service" / folder / name).read_text()
        for file, old, new in mistakes:
            if file != name:
                continue
            if text.count(old) != 1:
                sys.exit(f"{name}: this occurs {text.count(old)} times, not once: {old}")
            text = text.replace(old, new)
        (out / pathlib.Path(name).name).write_text(declaration + text)
