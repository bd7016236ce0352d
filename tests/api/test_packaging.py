# SPDX-License-Identifier: Apache-2.0
"""Completions, the example of quern.env and the systemd units: each comes from, or fits, the
program's own tables."""
import os, pathlib, re, shutil, subprocess

import pytest

import support

UNITS = support.ROOT / "packaging/systemd"
COMMANDS = re.findall(r"^  ([a-z-]+) ", support.quern("--help").stdout.split("example:")[0], re.M)


def own_options(command):
    own = re.split(r"^Options of vLLM", support.quern(command, "--help").stdout, flags=re.M)[0]
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)", own, re.M))


# --- completions ---

COMPLETE = r"""
source /dev/fd/9
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_quern
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    script = tmp_path_factory.mktemp("bash") / "quern"
    script.write_text(support.quern("completion", "bash").stdout)

    def complete(*words):
        done = subprocess.run([
            "bash", "-c",
            COMPLETE.replace("/dev/fd/9", str(script)), "bash", "quern", *map(str, words)],
                              capture_output=True,
                              text=True)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []
    return complete


def test_bash_completes_commands(bash):
    assert set(bash("")) == {*COMMANDS, "help", "--help", "--version"}
    assert bash("compl") == ["completion"] and set(bash("help", "")) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_every_option_of_a_command(bash, command):
    offered = bash(command, "--")
    assert len(offered) == len(set(offered))
    assert {name
            for name in offered
            if not name.startswith("--no-")} == own_options(command) | {"--help"}


def test_bash_completes_values(bash, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.gguf").touch()
    (tmp_path / "two words.gguf").touch()
    assert bash("serve", "--log-level", "") == ["error", "warn", "info", "debug"]
    assert bash("serve", "--log-level", "=", "w") == bash("run", "--log-level", "w") == ["warn"]
    assert bash("serve", "--log-level", "=") == ["error", "warn", "info", "debug"]
    assert bash("serve", "--profile", "o") == ["openai"] and bash("serve", "--metrics-compat",
                                                                  "") == ["vllm"]
    assert bash("serve", "--port", "") == [] == bash("serve", "--served-model-name", "")
    assert bash("serve", "--state-dir", f"{tmp_path}/") == [f"{tmp_path}/folder"]
    assert set(bash("serve", "-m", f"{tmp_path}/")) == {
        f"{tmp_path}/{name}"
        for name in ("folder", "file.gguf", "two words.gguf")}
    assert bash("models", "") == ["list", "fit", "inspect", "verify", "add"]
    assert bash("models", "inspect", f"{tmp_path}/fi") == [f"{tmp_path}/file.gguf"]
    assert bash("run", f"{tmp_path}/t") == [f"{tmp_path}/two words.gguf"]


@pytest.mark.parametrize("shell, command", [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]),
                                            ("fish", ["fish", "-n"])])
def test_a_shell_can_read_its_completions(tmp_path, shell, command):
    text = support.quern("completion", shell).stdout
    for name in COMMANDS:
        for option in own_options(name):
            assert re.search(rf"{option[2:]}\b", text), f"{shell}: {option} of {name}"
    (tmp_path / "quern").write_text(text)
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([*command, tmp_path / "quern"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(tmp_path):
    (tmp_path / "quern.fish").write_text(support.quern("completion", "fish").stdout)

    def fish(line):
        done = subprocess.run(["fish", "-c", f"source {tmp_path}/quern.fish; complete -C '{line}'"],
                              capture_output=True,
                              text=True,
                              env={**os.environ, "HOME": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        return [row.split("\t")[0] for row in done.stdout.splitlines()]
    assert set(fish("quern serve --profile ")) == {"quern", "openai"}
    assert fish("quern serve --drain") == ["--drain-seconds"]
    assert set(COMMANDS) <= set(fish("quern "))


def test_completions_are_of_three_shells():
    for words in (["completion"], ["completion", "tcsh"], ["completion", "bash", "zsh"]):
        assert support.quern(*words).returncode == 2


# --- quern.env ---

@pytest.mark.parametrize("command", ["serve", "run", "preflight"])
def test_the_example_has_every_setting_with_its_default(command):
    home = {"HOME": "/h", "PATH": "/"}
    text = support.quern("config", "example", command, env=home).stdout
    assert all(line == "" or line[0] == "#"
               for line in text.split("\n")), "nothing is set until its # is removed"
    variables = dict(re.findall(r"^#(QUERN_[A-Z_]+)=(.*)$", text, re.M))
    told = {name[6:].lower().replace("_", "-") for name in variables}
    only_flags = {
        "config", "input-file", "output-file", "manifest", "overwrite", "api-key", "end-with-parent", "prompt",
        "system", "schema", "id", "max-tokens", "temperature", "body", "delimiter", "token-columns",
        "excel-safe", "limit"}
    assert told == {option[2:] for option in own_options(command)} - only_flags
    given = {name: value for name, value in variables.items() if value}
    assert len(given) > 10
    shown = [
        support.quern("config", "show", command, env={**home, **more}).stdout
        for more in ({}, given)]
    assert shown[0] == shown[1], "the example says the defaults"


# --- systemd ---

needs_analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"),
                                   reason="systemd-analyze is not installed")


@pytest.fixture
def units(tmp_path):
    """The unit as it is installed, for this binary."""
    (tmp_path / "quern.service").write_text((UNITS / "quern.service.in").read_text().replace(
        "@bindir@/quern", str(pathlib.Path(support.BINARY).resolve())))
    return tmp_path


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True)


@needs_analyze
@pytest.mark.parametrize("drop_in, most", [(None, 2.0), ("gpu", 2.5), ("network", 2.0)])
def test_the_unit_exposes_little(units, drop_in, most):
    if drop_in:
        (units / "quern.service.d").mkdir()
        shutil.copy(UNITS / f"{drop_in}.conf", units / "quern.service.d")
    done = analyze("security", "--offline=true", f"--threshold={most * 10:.0f}",
                   units / "quern.service")
    found = re.search(r"Overall exposure level for quern.service: ([\d.]+)", done.stdout)
    assert found, done.stderr
    print(drop_in, found[1])
    assert done.returncode == 0 and float(found[1]) <= most, done.stdout


@needs_analyze
def test_the_unit_is_one_that_systemd_reads_without_a_word(units):
    done = analyze("verify", "--man=no", "--recursive-errors=no", units / "quern.service")
    assert done.returncode == 0 and "quern" not in done.stderr, done.stderr


def test_the_unit_names_variables_and_credentials_that_quern_reads():
    text = (UNITS / "quern.service.in").read_text()
    rooms = [support.ROOT / room for room in (
        "src/app/server", "src/service/keys", "src/app/label_studio")]
    code = "".join(path.read_text() for room in rooms for path in room.glob("*.c"))
    for name in re.findall(r"^LoadCredential=([\w-]+)", text, re.M):
        assert f'"{name}"' in code, name
    assert """ExecReload=/bin/sh -c 'kill -HUP "$MAINPID"'\n""" in text and "Type=notify\n" in text
