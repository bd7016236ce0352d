# SPDX-License-Identifier: Apache-2.0
"""Each option stands in one table of the program: what --help, the man pages, completions, `quern
config example` and `quern config show` say about it agrees, for every command that `quern --help`
lists, also one that is new. test_packaging.py has the completions of each shell, test_manual.py the
names on the pages."""
import re

import pytest

import support

COMMANDS = re.findall(r"^  ([a-z-]+) ", support.quern("--help").stdout.split("example:")[0], re.M)
NO_HOME = {"HOME": "/h", "PATH": "/"}


def variables_of(command):
    """The settings of a command with their defaults; None if it reads no settings."""
    done = support.quern("config", "example", command, env=NO_HOME)
    return dict(re.findall(r"^#QUERN_([A-Z0-9_]+)=(.*)$", done.stdout,
                           re.M)) if done.returncode == 0 else None


WITH_SETTINGS = [command for command in COMMANDS if variables_of(command) is not None]


def test_the_commands_with_settings_are_those_that_config_names():
    named = re.search(r"\[([a-z|]+)\]", support.quern("config", "--help").stdout)[1].split("|")
    assert sorted(named) == sorted(WITH_SETTINGS)


def shown(tmp_path, command, name):
    """The line of `config show` for a setting that a file gives some value."""
    for value in ("1", "2", "60", "16777216", "true", "0.5"):
        (tmp_path / "config").write_text(f"{name} = {value}\n")
        done = support.quern("config",
                             "show",
                             command,
                             "--config",
                             tmp_path / "config",
                             env=NO_HOME)
        if done.returncode == 0:
            return value, re.findall(rf"^{name} = (.*)$", done.stdout, re.M)
    raise AssertionError(f"{name} takes none of the values: {done.stderr}")


@pytest.mark.parametrize("command", WITH_SETTINGS)
def test_config_show_shows_every_setting_of_the_help(tmp_path, command):
    own = re.split(r"^Options of vLLM", support.quern(command, "--help").stdout, flags=re.M)[0]
    listed = set(re.findall(r"^ +(?:-\w, )?--([a-z][a-z0-9-]*)", own, re.M))
    settings = {name.lower().replace("_", "-") for name in variables_of(command)}
    assert settings <= listed
    for name in sorted(settings):
        value, lines = shown(tmp_path, command, name)
        assert lines in ([value], ["********"]), (name, value, lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_takes_the_options_that_its_help_lists_and_no_other(command):
    assert support.quern(command, "--help").returncode == 0
    done = support.quern(command, "--no-such-option-at-all", env=NO_HOME)
    assert done.returncode == 2, (done.returncode, done.stderr)
