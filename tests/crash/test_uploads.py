# SPDX-License-Identifier: Apache-2.0
"""An upload in parts, killed at the n-th call to the disk: what was acknowledged is there, nothing
is there twice or by half, and no bytes stay behind."""
import json, shutil, signal, uuid

import pytest

import life, support
from life import Died, ECHO, Victim, scaled, spread

PIECES = [bytes([65 + i]) * (1000 + i) for i in range(4)]
CONTENT = b"".join(PIECES)


class Uploader:
    """Goes on where it was; whatever was acknowledged is relied on."""

    def __init__(self):
        self.upload, self.parts, self.file = None, [], None

    def part(self, server, piece):
        boundary = uuid.uuid4().hex
        body = f'--{boundary}\r\nContent-Disposition: form-data; name="data"; filename="upload"\r\n\r\n'.encode(
        ) + piece
        body += f"\r\n--{boundary}--\r\n".encode()
        status, data = server.call("POST", f"/v1/uploads/{self.upload}/parts", body,
                                   f"multipart/form-data; boundary={boundary}")
        assert status == 200, data
        return json.loads(data)["id"]

    def go(self, server):
        if not self.upload:
            made = {
                "bytes": len(CONTENT), "filename": "x", "mime_type": "x/x", "purpose": "user_data"}
            self.upload = server.json("POST", "/v1/uploads", made)["id"]
        seen = server.json("GET", f"/v1/uploads/{self.upload}")
        while len(self.parts) < len(PIECES) and seen["status"] == "pending":
            self.parts.append(self.part(server, PIECES[len(self.parts)]))
        if seen["status"] == "pending":
            seen = server.json("POST", f"/v1/uploads/{self.upload}/complete",
                               {"part_ids": self.parts})
        # Completed, now or by a call whose answer was lost; if it was heard of, it is the same
        # file.
        assert seen["status"] == "completed" and self.file in (None, seen["file"]["id"])
        self.file = seen["file"]["id"]
        assert server.call("GET", f"/v1/files/{self.file}/content") == (200, CONTENT)


def upload_with(state, plan):
    """One life under a plan, and a clean one after it. True when the plan came due."""
    client, died = Uploader(), False
    victim = Victim(state, *ECHO, plan=plan)
    try:
        victim.start()
        client.go(victim)
        victim.process.send_signal(signal.SIGTERM)
        died = victim.process.wait(60) != 0
    except Died:
        died = True
    finally:
        if victim.process.poll() is None:
            victim.kill()
        victim.log.close()
    with support.serving(state, *ECHO) as server:
        client.go(server)
        assert [file["id"] for file in server.json("GET", "/v1/files")["data"]] == [client.file]
        assert server.stop() == 0
    with support.serving(state, *ECHO) as server:
        assert server.stop() == 0
    assert [path for folder in ("parts", "tmp") for path in (state / folder).iterdir()] == []
    assert [path.name for path in (state / "files").rglob("file-*")] == [client.file]
    support.fsck(state)
    shutil.rmtree(state)
    return died


def test_an_upload_killed_at_any_call_to_the_disk_goes_on(tmp_path):
    last = 1
    while upload_with(tmp_path / f"find-{last}", f"any:{last}:KILL"):
        last *= 2
    points = spread(1, last, scaled(40))
    died = [upload_with(tmp_path / f"{n}", f"any:{n}:KILL") for n in points]
    print(f"{sum(died)} deaths at {len(points)} of up to {last} calls")
    assert sum(died) >= len(points) / 3


@pytest.mark.parametrize("call,end", [("write", "TEAR"), ("fsync", "KILL"), ("rename", "KILL"),
                                      ("unlink", "KILL")])
def test_an_upload_killed_at_each_kind_of_call_goes_on(tmp_path, call, end):
    died = [upload_with(tmp_path / f"{n}", f"{call}:{n}:{end}") for n in range(1, scaled(4) + 1)]
    assert any(died)
