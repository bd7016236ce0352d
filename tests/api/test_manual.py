# SPDX-License-Identifier: Apache-2.0
"""The man pages name the commands and options that the program has, and only those."""
import pathlib, re

import pytest

import support

PAGES = pathlib.Path(__file__).parents[2] / "docs/man"
LISTED = re.findall(r"^  (\w+) ", support.quern("--help").stdout, re.M)
COMMANDS = [name for name in LISTED if name != "quern"]


def options_of(command):
    own, *foreign = re.split(r"^Options of vLLM", support.quern(command, "--help").stdout, flags=re.M)
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)", own, re.M)) | set(re.findall(r"--[a-z][a-z0-9-]*", " ".join(foreign)))


ALL = {"--help", "--version"}.union(*(options_of(command) for command in COMMANDS))


def words_of(page):
    """The page's text, with the pages that it includes, without escapes."""
    text = page.read_text()
    if text.startswith(".so man1/"):
        return words_of(PAGES / text.split("/")[1].strip())
    return text.replace("\\-", "-")


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.1")))
def test_a_page_names_only_options_that_exist(page):
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", words_of(PAGES / page)))
    turned_off = {"--" + option.removeprefix("--no-") for option in named if option.startswith("--no-")}
    assert {option for option in named if not option.startswith("--no-")} | turned_off <= ALL


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_page_and_the_first_page_names_it(command):
    assert command in words_of(PAGES / f"quern-{command}.1")
    assert f"quern-{command}" in words_of(PAGES / "quern.1")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"run", "serve", "preflight"}))
def test_a_small_command_has_every_option_on_its_page(command):
    assert options_of(command) <= set(re.findall(r"--[a-z][a-z-]*", words_of(PAGES / f"quern-{command}.1")))
