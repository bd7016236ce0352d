#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed_json.py NAME IN.json OUT.c: writes the JSON document IN, compact and in ASCII, as the C
string NAME."""
import json, sys


def no_repeats(pairs):
    keys = [key for key, _ in pairs]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        sys.exit(f"embed_json: {sys.argv[2]}: repeated in one object: {', '.join(sorted(twice))}")
    return dict(pairs)


name, source, target = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    text = json.dumps(json.load(file, object_pairs_hook=no_repeats), separators=(",", ":"))
codes = [str(byte) for byte in text.encode("ascii")] + ["0"]
lines = (",".join(codes[i : i + 32]) for i in range(0, len(codes), 32))
with open(target, "w", encoding="ascii") as file:
    file.write(f"extern const char {name}[];\nconst char {name}[] = {{\n" + ",\n".join(lines) +
               "};\n")
