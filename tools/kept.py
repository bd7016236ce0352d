# SPDX-License-Identifier: Apache-2.0
"""kept: the records of sources that were found good, .ci/good/NAME, one line "SUM PATH" per source.

A sum covers what a tool sees of a source: its text, that of every header of this repository that it
includes, directly or not, and the rules of the tool, all without comments and blanks. So a source
that is moved, or has another comment, is as good as it was, and the record holds on every machine.
Headers of the system are not covered; `make nightly` reads every source again.

Used by tools/syntax, tools/clang-tidy and tools/cuda."""
import functools, hashlib, pathlib, re

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUOTED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


@functools.cache
def text_of(path):
    """A source without comments and with one blank between words."""
    text = QUOTED.sub(lambda found: " " if found[0].startswith("/") else found[0],
                      path.read_text(errors="replace"))
    text = text.replace(str(ROOT), ".")  # generated sources name files by their whole path
    return re.sub(r"[ \t]+", " ", re.sub(r"\s*\n\s*", "\n", text))


def rules_of(*paths):
    """The rules of a tool: files whose comments begin with "#"."""
    return b"".join(
        re.sub(r"(^|\s+)#.*|\s+", "", (ROOT / path).read_text(), flags=re.M).encode()
        for path in paths)


@functools.cache
def included(path, folders):
    """The files of this repository that a source includes itself."""
    found = []
    for name in re.findall(r'^ ?# ?include "([^"]+)"', text_of(path), re.M):
        at = next(
            (folder / name for folder in (path.parent, *folders) if (folder / name).is_file()),
            None)
        if at:
            found.append(at.resolve())
    return found


def sum_of(path, folders, rules):
    """The sum of a source, whose headers are looked for in `folders`."""
    seen, left = [], [path.resolve()]
    while left:
        path = left.pop()
        if path not in seen:
            seen.append(path)
            left += included(path, folders)
    digests = sorted(hashlib.sha256(text_of(path).encode()).digest() for path in seen)
    return hashlib.sha256(rules + b"".join(digests)).hexdigest()[:24]


class Record:
    def __init__(self, name):
        self.path = ROOT / ".ci/good" / name
        self.old = dict(
            reversed(line.split(" ", 1))
            for line in self.path.read_text().splitlines()) if self.path.exists() else {}
        self.sums = set(self.old.values())

    def has(self, total):
        return total in self.sums

    def keep(self, totals):
        """Replaces the record by {path: sum}: sources that are gone leave it."""
        text = "".join(f"{total} {path}\n" for path, total in sorted(totals.items()))
        if not self.path.exists() or self.path.read_text() != text:
            self.path.write_text(text)
