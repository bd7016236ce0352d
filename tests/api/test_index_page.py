# SPDX-License-Identifier: Apache-2.0
"""The pages for a browser as bytes: which headers they have, that they need nothing from elsewhere,
and that no text can become code. tests/clients/test_playwright.py uses them in a real browser."""
import http.client, re

import pytest

import support

FIRST_PAGE_BYTES_MAX = 150_000  # all that the first page asks for
LATER = re.compile(
    r'import\("/pages/[\w.-]+"\)')  # import in a page that is loaded when it is first opened


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(tmp_path_factory.mktemp("pages") / "state", "--model",
                         "smollm2=echo") as server:
        yield server


def asset(server, path, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    try:
        connection.request("GET", path, headers={"Accept": "text/html", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {
            name.lower(): value
            for name, value in answer.getheaders()}
    finally:
        connection.close()


def everything(server, also_later=True):
    """{path: text} of the first page and all that it names, and that these name; of pages loaded
    later only if they are wanted."""
    found, wanted = {}, ["/"]
    while wanted:
        path = wanted.pop()
        status, text, _ = asset(server, path)
        assert status == 200, path
        found[path] = text
        named = re.findall(r"/pages/[\w.-]+", text if also_later else LATER.sub("", text))
        wanted += [name for name in named if name not in found and name not in wanted]
    return found


def test_each_file_has_its_type_and_a_policy_that_allows_this_server_alone(server):
    types = {
        "/": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for path in everything(server):
        _, _, headers = asset(server, path)
        assert headers["content-type"].startswith(
            next(kind for end, kind in types.items() if path.endswith(end)))
        policy = dict(
            rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy[
            "form-action"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy[
            "connect-src"] == "'self'" and policy["require-trusted-types-for"] == "'script'"
        assert headers["x-content-type-options"] == "nosniff" and headers[
            "referrer-policy"] == "no-referrer"


def test_a_browser_that_has_a_file_is_told_so(server):
    for path in ("/", "/pages/app.js"):
        _, text, headers = asset(server, path)
        assert text and headers["cache-control"] == "no-cache"
        status, again, known = asset(server, path, {"If-None-Match": headers["etag"]})
        assert (status, again, known["etag"]) == (304, "", headers["etag"])
        assert asset(server, path, {"If-None-Match": '"other"'})[0] == 200


def test_other_names_are_no_pages(server):
    for path in ("/pages/none.js", "/pages/..%2Findex.html", "/pages/", "/pages/app.js%00",
                 "/index.html"):
        status, text, _ = asset(server, path)
        assert status in (400, 404) and '"error"' in text, path


def test_the_first_page_is_small_and_asks_no_other_server(server):
    first, files = everything(server, also_later=False), everything(server)
    assert {"/pages/app.js", "/pages/style.css", "/pages/batches.js"} <= set(first) and {
        "/pages/batch.js", "/pages/curate.js"} <= set(files) - set(first)
    assert sum(len(text.encode()) for text in first.values()) <= FIRST_PAGE_BYTES_MAX
    for path, text in files.items():
        foreign = [
            url for url in re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"')]*", text)
            if "www.w3.org/2000/svg" not in url]
        assert not foreign, (path, foreign)


def test_no_page_has_code_in_its_markup_or_makes_markup_from_text(server):
    for path, text in everything(server).items():
        if path == "/":
            assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:", text)
        else:
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\.style\b|setAttribute\(\"style",
                text), path
