#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed_files.py OUT.c FILE...: writes the files, in the order of their names, as the table of
pages/pages.h."""
import hashlib, pathlib, sys

TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

target, *names = sys.argv[1:]
files = sorted(map(pathlib.Path, names), key=lambda path: path.name)
with open(target, "w", encoding="ascii") as out:
    out.write('#include "pages/pages.h"\n')
    for number, path in enumerate(files):
        codes = [str(byte) for byte in path.read_bytes()]
        lines = (",".join(codes[at:at + 32]) for at in range(0, len(codes), 32))
        out.write(f"static const unsigned char bytes_{number}[] = {{\n" + ",\n".join(lines) +
                  "};\n")
    out.write("const struct pages_file pages_files[] = {\n")
    for number, path in enumerate(files):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
        out.write(
            f'    {{"{path.name}", "{TYPES[path.suffix]}", "\\"{digest}\\"", {{(const char *)bytes_{number}, sizeof bytes_{number}}}}},\n'
        )
    out.write("};\nconst size_t pages_file_count = sizeof pages_files / sizeof *pages_files;\n")
