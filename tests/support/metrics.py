# SPDX-License-Identifier: Apache-2.0
"""A strict reader of /metrics: the text format 0.0.4 of Prometheus, its conventions for names, and
histograms that are consistent."""
import math, re, shutil

PROMTOOL = shutil.which("promtool")
NO_PROMTOOL = "promtool is not installed (Debian's package prometheus, 19 MB)"
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SUFFIXES = ("_bucket", "_sum", "_count")


class Metrics:
    """kinds: the type of each metric. samples: the value of each series, by its name and its labels
    as a frozenset of pairs."""

    def __init__(self, text):
        self.kinds, self.samples = {}, {}
        helped, current = set(), None
        assert text.endswith("\n")
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name, words = line[7:].split(" ", 1)
                assert re.fullmatch(NAME, name) and name not in helped and words.strip(), line
                helped.add(name)
            elif line.startswith("# TYPE "):
                name, kind = line[7:].split(" ")
                assert kind in ("counter", "gauge",
                                "histogram") and name not in self.kinds and name in helped, line
                self.kinds[name] = kind
                current = name
            else:
                self.take(line, current)
        self.check_histograms()

    def take(self, line, current):
        found = re.fullmatch(rf"({NAME})(?:\{{(.*)\}})? (\S+)", line)
        assert found, line
        name, inside, value = found.groups()
        labels = LABEL.findall(inside or "")
        assert ",".join(f'{key}="{text}"' for key, text in labels) == (inside or ""), line
        assert len(dict(labels)) == len(labels), line
        assert self.family(name) == current, f"{line}: not below its own TYPE"
        key = name, frozenset(labels)
        assert key not in self.samples, line
        self.samples[key] = float(value)

    def family(self, name):
        """The metric that a series belongs to."""
        for suffix in SUFFIXES:
            if name.endswith(suffix) and self.kinds.get(name[: -len(suffix)]) == "histogram":
                return name[: -len(suffix)]
        return name

    def check_histograms(self):
        ranges = {}
        for (name, labels), value in self.samples.items():
            if self.kinds[self.family(name)] == "histogram" and name.endswith("_bucket"):
                pairs = dict(labels)
                bound = float(pairs.pop("le"))
                ranges.setdefault((name[:-len("_bucket")], frozenset(pairs.items())), []).append(
                    (bound, value))
        for (name, labels), pairs in ranges.items():
            pairs.sort()
            counts = [count for _, count in pairs]
            assert counts == sorted(counts) and pairs[-1][0] == math.inf, name
            assert counts[-1] == self.samples[name + "_count",
                                              labels] and self.samples[name + "_sum",
                                                                       labels] >= 0, name

    def series(self, name, **labels):
        """All series of the name that have these labels: their labels and values."""
        wanted = set(labels.items())
        return [(dict(pairs), value)
                for (own, pairs), value in self.samples.items()
                if own == name and wanted <= pairs]

    def value(self, name, **labels):
        """The sum of all these series; there is at least one."""
        found = self.series(name, **labels)
        assert found, f"no {name}{labels}"
        return sum(value for _, value in found)

    def labels_of(self, name):
        """The names of all labels of a metric."""
        return {key for (own, pairs) in self.samples if own == name for key, _ in pairs}


def of(server):
    status, data = server.call("GET", "/metrics")
    assert status == 200
    return Metrics(data.decode())


def falls(before, after):
    """Counters and counts of histograms that are lower after than before."""
    return [
        key for key, value in before.samples.items()
        if (before.kinds[before.family(key[0])] == "counter" or key[0].endswith(SUFFIXES)
            and before.family(key[0]) != key[0]) and after.samples.get(key, -1) < value]
