# SPDX-License-Identifier: Apache-2.0
"""A GGUF file as its pairs and tensors, to be changed and written again; only the standard library
is needed.

Pairs are {key: (kind, value)}, where an array's value is (kind of the elements, list); tensors are
(name, extents fastest first, type, bytes)."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMS = {
    U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q",
    I64: "q", F64: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def string(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode(errors="surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, count = self.take("IQ")
            if element == STRING:
                return element, [self.string() for _ in range(count)]
            values = list(struct.unpack_from(f"<{count}{FORMS[element]}", self.data, self.at))
            self.at += count * struct.calcsize(FORMS[element])
            return element, values
        return self.take(FORMS[kind])


def read(path):
    """(pairs, tensors) of a file; the tensors lie one after the other, so a tensor's bytes end
    where the next one begins."""
    reader = Reader(open(path, "rb").read())
    _, _, tensor_count, pair_count = reader.take("IIQQ")
    pairs, places = {}, []
    for _ in range(pair_count):
        key, kind = reader.string(), reader.take("I")
        pairs[key] = kind, reader.value(kind)
    for _ in range(tensor_count):
        name, axes = reader.string(), reader.take("I")
        extents = [reader.take("Q") for _ in range(axes)]
        places.append((name, extents, *reader.take("IQ")))
    alignment = pairs.get("general.alignment", (U32, 32))[1]
    start = reader.at + -reader.at % alignment
    ends = sorted(place[3] for place in places) + [len(reader.data) - start]
    return pairs, [
        (name, extents, kind,
         reader.data[start + at:start +
                     min(end for end in ends if end > at)]) for name, extents, kind, at in places]


def packed(kind, value):
    if kind == STRING:
        data = value.encode(errors="surrogateescape")
        return struct.pack("<Q", len(data)) + data
    if kind == ARRAY:
        element, values = value
        return struct.pack("<IQ", element, len(values)) + b"".join(
            packed(element, one) for one in values)
    return struct.pack("<" + FORMS[kind], value)


def write(path, pairs, tensors, alignment=32):
    infos, content = b"", b""
    for name, extents, kind, data in tensors:
        infos += packed(STRING, name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents,
                                                    kind, len(content))
        content += data + bytes(-len(data) % alignment)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(
        packed(STRING, key) + struct.pack("<I", kind) + packed(kind, value)
        for key, (kind, value) in pairs.items()) + infos
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % alignment) + content)
    return path
