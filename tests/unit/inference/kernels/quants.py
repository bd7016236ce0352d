#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds the vector of one GGUF type to quants.json: three blocks and their values, computed by PyPI
`gguf`.

  python3 tests/unit/inference/kernels/quants.py TQ2_0 64      TQ2_0, whose block has an IEEE half
                                                               at byte 64; several offsets are
                                                               allowed

The first two blocks are random with small scales, the third is zero. The test wants equal bits;
where `gguf` multiplies in another order than the format's own code, the values must be written out
in that code's order."""
import json, pathlib, random, sys

import numpy
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

FILE = pathlib.Path(__file__).with_name("quants.json")
kind, halves, rng = GGMLQuantizationType[sys.argv[1]], map(int, sys.argv[2:]), random.Random(7)
elements, size = GGML_QUANT_SIZES[kind]
blocks = [bytearray(rng.randbytes(size)), bytearray(rng.randbytes(size)), bytearray(size)]
for at in halves:
    for block in blocks[:2]:
        block[at:at + 2] = numpy.array([rng.uniform(-0.02, 0.02)], dtype="<f2").tobytes()
row = b"".join(blocks)
values = dequantize(numpy.frombuffer(row, dtype=numpy.uint8).reshape(1, -1), kind).reshape(-1)
vectors = [vector for vector in json.loads(FILE.read_text()) if vector["type"] != kind.name]
vectors.append({
    "type": kind.name, "ggml_type": int(kind), "block_elems": elements, "block_bytes": size,
    "hex": row.hex(), "values": [
        float(numpy.format_float_scientific(value, precision=8)) for value in values]})
FILE.write_text("[\n" + ",\n".join(json.dumps(vector, separators=(",", ":"))
                                   for vector in vectors) + "\n]\n")
