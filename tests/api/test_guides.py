# SPDX-License-Identifier: Apache-2.0
"""The shell commands of README.md and docs/guides run as they stand, one guide after the other in a
folder and a HOME of its own: with the files that `make install` puts below a prefix, as a user of
the package has them, and in the nightly from the clone, too.

What stands before a block of `sh` in the page's source decides:

    nothing                    it runs, and ends with 0
    <!-- serves -->            it runs until the next server of the page or its end, and prints that
                               it listens
    <!-- beside: COMMAND -->   it runs next to this server, which goes on
    <!-- after: COMMANDS -->   it runs after these, which a reader does not need: they make what the
                               reader has
    <!-- alone after: COMMANDS -->  the same, once the page's server has ended
    <!-- not run: REASON -->   it does not run here; its options of quern must exist

`systemctl` does nothing here: `alone` says that the server has ended. A server listens on a free
port, which stands for 8080 in what follows. Places of a whole machine (/etc/quern, /var, /mnt) are
folders of the guide's own. """
import os, pathlib, re, signal, subprocess, textwrap

import pytest

import support

PAGES = [support.ROOT / "README.md", *sorted((support.ROOT / "docs/guides").glob("*.md"))]
MODELS = pathlib.Path(os.environ.get("XDG_CACHE_HOME",
                                     pathlib.Path.home() / ".cache")) / "quern/models"
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*?) -->\n[ ]*)?```sh\n(?P<text>.*?)\n[ ]*```", re.S)
MARK = re.compile(r"serves|(?:not run|beside|after|alone after): \S.*")


class Block:
    def __init__(self, page, found):
        self.mark, self.text = found["mark"], textwrap.dedent(found["text"])
        self.name = f"{page.name}:{page.read_text()[:found.start('text')].count(chr(10)) + 1}"


def blocks_of(page):
    return [Block(page, found) for found in BLOCK.finditer(page.read_text())]


ALL = [block for page in PAGES for block in blocks_of(page)]


def words_of(text):
    """Each command of quern in a text of the shell: its name and its options."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in re.split(r"[\n|;]|&&", joined):
        found = re.search(r"(?:^|(?<!-u)\s|\()quern +([a-z][a-z-]*)((?: +[^#]*)?)", line)
        if found and "apt" not in line and "systemctl" not in line and "pip" not in line:
            yield found[1], re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", found[2])


@pytest.mark.parametrize("block", ALL, ids=[block.name for block in ALL])
def test_marks_are_known_and_options_exist(block):
    assert block.mark is None or MARK.fullmatch(block.mark), f"{block.name}: {block.mark}"
    for command, options in words_of(block.text):
        shown = support.quern(command, "--help")
        assert shown.returncode == 0, (block.name, command)
        known = set(re.findall(r"--([a-z][a-z0-9-]*)", shown.stdout))
        for option in options:
            assert option in known or option.removeprefix("no-") in known, (block.name, command,
                                                                            option)


class Room:
    """Where a guide runs."""

    def __init__(self, folder, binary, examples):
        self.folder, self.server, self.port = folder, None, None
        for name in ("home/.cache/quern", "bin", "work", "root/etc/quern", "root/var/lib/quern",
                     "root/mnt", "root/tmp"):
            (folder / name).mkdir(parents=True)
        (folder / "root/var/lib/quern").chmod(0o700)
        (folder / "home/.cache/quern/models").symlink_to(MODELS)
        (folder / "work/examples").symlink_to(examples)
        wrapper = folder / "bin/quern"
        wrapper.write_text(
            f'#!/bin/sh\n[ "$1" = serve ] && exec {binary} "$@" --port 0\nexec {binary} "$@"\n'
        )
        wrapper.chmod(0o755)
        manager = folder / "bin/systemctl"
        manager.write_text("#!/bin/sh\nexit 0\n")
        manager.chmod(0o755)
        kept = {
            name: os.environ[name]
            for name in ("LANG", "QUERN_PACKED_CACHE_DIR", "LD_LIBRARY_PATH", "ASAN_OPTIONS")
            if name in os.environ}
        self.environment = {
            **kept, "HOME": str(folder / "home"),
            "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"}

    def start(self, text):
        text = re.sub(r"(?<![\w./-])/(?=(?:etc/quern|var/lib/quern|var/cache/quern|mnt|tmp)\b)",
                      f"{self.folder}/root/", text)
        if self.port:
            text = re.sub(r"\b(127\.0\.0\.1|localhost):8080\b", rf"\1:{self.port}", text)
        return subprocess.Popen(["bash", "-euo", "pipefail", "-c", text],
                                cwd=self.folder / "work",
                                env=self.environment,
                                stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE,
                                stderr=open(self.folder / "errors", "ab"),
                                text=True,
                                start_new_session=True)

    def said(self):
        return (self.folder / "errors").read_text()[-2000:]

    def take(self, block):
        kind, _, more = (block.mark or "").partition(": ")
        if kind in ("serves", "beside", "alone after"):
            self.stop()
        if kind == "serves":
            return self.serve(block.name, block.text)
        if kind == "beside":
            self.serve(block.name, more)
        if kind in ("after", "alone after"):
            self.run(block.name, more)
        self.run(block.name, block.text)

    def run(self, name, text):
        process = self.start(text)
        try:
            output = process.communicate(timeout=900)[0]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{name} ends with {process.returncode}:\n{text}\n{output}\n{self.said()}"

    def serve(self, name, text):
        self.server = self.start(text)
        line = self.server.stdout.readline()
        found = re.match(r"listening on https?://\S+:(\d+)$", line.strip())
        assert found, f"{name} does not listen: {line!r}\n{self.said()}"
        self.port = int(found[1])
        self.environment["OPENAI_BASE_URL"] = f"http://127.0.0.1:{self.port}/v1"

    def stop(self):
        if not self.server:
            return
        os.killpg(self.server.pid, signal.SIGTERM)
        try:
            self.server.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(self.server.pid, signal.SIGKILL)
            self.server.wait()
        self.server = None


@pytest.fixture(scope="module",
                params=["installed", "clone"] if support.IS_NIGHTLY else ["installed"])
def found(request, tmp_path_factory):
    """The binary and the folder of examples that a reader of the guides has."""
    if request.param == "clone":
        return support.BINARY, support.ROOT / "examples"
    root = tmp_path_factory.mktemp("installed")
    built = pathlib.Path(support.BINARY).resolve().parent.parent
    subprocess.run(["meson", "install", "-C", built, "--no-rebuild", "--quiet", "--destdir", root],
                   check=True, timeout=60)
    [binary] = root.glob("**/bin/quern")
    return binary, binary.parent.parent / "share/doc/quern/examples"


def test_the_guides_are_installed_and_so_is_each_example_that_they_name(found):
    binary, examples = found
    if binary == support.BINARY:
        pytest.skip("a clone has its examples in two folders")
    named = {name for block in ALL for name in re.findall(r"examples/([\w./-]+\w)", block.text)}
    assert named and all((examples / name).exists() for name in named - {"quern.env"})
    guides = {path.name for path in (examples.parent / "docs/guides").glob("*.md")}
    assert guides == {page.name for page in PAGES} - {"README.md"}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_the_commands_of_a_page_run(page, found, tmp_path):
    todo = [block for block in blocks_of(page) if not (block.mark or "").startswith("not run: ")]
    if not todo:
        pytest.skip("no block of this page runs here; each says why")
    if not MODELS.is_dir():
        pytest.skip("no models: tools/fetch-model smollm2 all-minilm")
    room = Room(tmp_path, *found)
    try:
        for block in todo:
            room.take(block)
    finally:
        room.stop()
