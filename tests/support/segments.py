# SPDX-License-Identifier: Apache-2.0
"""A batch's segments as src/service/store/seglog_format.h says, read without quern's code."""
import struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def records(data):
    """Offset, length and line of each whole record of a segment.

    A server that was killed may have written a part of its last group. Zeros that were taken from
    the disk before stand behind that part, so that only the checksum tells."""
    at, record = 128, None  # behind the segment's header
    while data[at:at + 4] == b"QREC" and at + 48 <= len(data):
        if record: yield record
        checksum, length = struct.unpack_from("<II", data, at + 4)
        record = at, 48 + length, struct.unpack_from("<Q", data, at + 16)[0]
        at += 48 + length
    if record and crc32c(data[record[0] + 8:at]) == checksum: yield record
