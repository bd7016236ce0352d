#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed_text.py NAME IN OUT.c: writes the ASCII text IN as the C string NAME."""
import sys

name, source, target = sys.argv[1:]
with open(source, encoding="ascii") as file:
    codes = [str(byte) for byte in file.read().encode("ascii")] + ["0"]
lines = (",".join(codes[i : i + 32]) for i in range(0, len(codes), 32))
with open(target, "w", encoding="ascii") as file:
    file.write(f"extern const char {name}[];\nconst char {name}[] = {{\n" + ",\n".join(lines) +
               "};\n")
