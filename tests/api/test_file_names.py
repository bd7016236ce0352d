# SPDX-License-Identifier: Apache-2.0
"""A file keeps the last part of the name that its client gives."""
import pytest

NAMES = [("a.jsonl", "a.jsonl"), ("../../etc/passwd", "passwd"), ("/etc/passwd", "passwd"),
         ("C:\\Users\\me\\in.jsonl", "in.jsonl"), ("a/b\\c", "c"), ("folder/", "upload"),
         ("..", "upload"), ("a/..", "upload"), (".", "upload"), ("/", "upload"), ("..a", "..a"),
         ("\u00fc/\u00e4.txt", "\u00e4.txt")]


@pytest.mark.parametrize("given,kept", NAMES)
def test_a_file_of_a_form(echo_server, given, kept):
    file = echo_server.upload(b"{}\n", filename=given.replace("\\", "\\\\"))
    assert file["filename"] == kept
    assert echo_server.json("GET", f"/v1/files/{file['id']}")["filename"] == kept


@pytest.mark.parametrize("given,kept", NAMES)
def test_a_file_of_parts(echo_server, given, kept):
    upload = echo_server.json(
        "POST", "/v1/uploads",
        {"bytes": 3, "filename": given, "mime_type": "text/plain", "purpose": "user_data"})
    assert upload["filename"] == kept


CONTROLS = ["a\x1b[2J.jsonl", "a\x7f.jsonl", "a\tb", "\x01", "a\u0085b", "folder/\x1b]0;title\x07"]


@pytest.mark.parametrize("given", CONTROLS, ids=ascii)
def test_a_name_that_commands_a_terminal_is_refused(echo_server, given):
    form = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{given}"\r\n\r\nabc\r\n--x--\r\n'.encode(
    )
    for status, data in (echo_server.call("POST", "/v1/files", form,
                                          "multipart/form-data; boundary=x"),
                         echo_server.call(
                             "POST", "/v1/uploads", {
                                 "bytes": 3, "filename": given, "mime_type": "text/plain",
                                 "purpose": "user_data"})):
        assert status == 400 and b"filename" in data or b"header" in data, data
        assert b"\x1b" not in data and given.encode() not in data
