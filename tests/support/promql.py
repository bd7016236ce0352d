# SPDX-License-Identifier: Apache-2.0
"""The names in a PromQL expression: metrics and their labels. No evaluation: a reader of the subset
that boards and alerts are written in."""
import re

FUNCTIONS = {
    "rate", "increase", "sum", "min", "max", "avg", "count", "histogram_quantile", "predict_linear",
    "clamp_min", "time", "label_values"}
WORDS = {
    "and", "or", "unless", "by", "on", "without", "ignoring", "group_left", "group_right", "bool",
    "offset"}
TARGET = {"job", "instance"}  # labels that Prometheus adds
TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][a-zA-Z0-9_:]*|\d[\d.e+-]*\w*|[{}(),]|=~|!=|!~|==|[^\s\w]'
)


def names(expression):
    """[(metric, labels that it is matched by)], and the labels that results are grouped by."""
    tokens = TOKEN.findall(expression)
    found, groups, i = [], set(), 0
    while i < len(tokens):
        token, after = tokens[i], tokens[i + 1] if i + 1 < len(tokens) else ""
        if token in ("by", "on"):
            end = tokens.index(")", i)
            groups |= set(tokens[i + 2:end]) - {","}
            i = end
        elif re.match(r"[a-zA-Z_:]", token) and token not in WORDS:
            if after == "(" or (token in FUNCTIONS and after in ("by", "without")):
                assert token in FUNCTIONS, f"{token} in {expression}"
            else:
                labels = set()
                if after == "{":
                    end = tokens.index("}", i)
                    labels = {
                        name
                        for name, sign in zip(tokens[i + 2:end], tokens[i + 3:end])
                        if sign in ("=", "=~", "!=", "!~")}
                    i = end
                found.append((token, labels))
        i += 1
    return found, groups
