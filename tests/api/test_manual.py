# SPDX-License-Identifier: Apache-2.0
"""The man pages name the commands and options that the program has, and only those."""
import json, pathlib, re

import pytest

import support

PAGES = pathlib.Path(__file__).parents[2] / "docs/man"
LISTED = re.findall(r"^  ([a-z-]+) ", support.quern("--help").stdout, re.M)
COMMANDS = [name for name in LISTED if name != "quern"]


def options_of(command):
    own, *foreign = re.split(r"^Options of vLLM",
                             support.quern(command, "--help").stdout,
                             flags=re.M)
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)", own, re.M)) | set(
        re.findall(r"--[a-z][a-z0-9-]*", " ".join(foreign)))


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
    turned_off = {
        "--" + option.removeprefix("--no-")
        for option in named
        if option.startswith("--no-")}
    assert {option for option in named if not option.startswith("--no-")} | turned_off <= ALL


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_page_and_the_first_page_names_it(command):
    assert command in words_of(PAGES / f"quern-{command}.1")
    assert f"quern-{command}" in words_of(PAGES / "quern.1")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {
    "run", "serve", "worker", "preflight", "evaluate", "tune"}))
def test_a_small_command_has_every_option_on_its_page(command):
    assert options_of(command) <= set(
        re.findall(r"--[a-z][a-z-]*", words_of(PAGES / f"quern-{command}.1")))


@pytest.mark.parametrize("command", ["serve", "run", "worker", "preflight", "evaluate", "tune"])
def test_a_large_command_has_every_option_on_its_page_or_on_that_of_serve(command):
    pages = {f"quern-{command}.1", "quern-serve.1"}
    assert "quern-serve (1)" in words_of(PAGES / f"quern-{command}.1") or command == "serve"
    assert options_of(command) <= set(
        re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words_of(PAGES / page) for page in pages)))


# --- defaults and statuses: the help, `quern config show`, the pages and the code agree ---

def defaults_of(command):
    """Each option's default as the help tells it."""
    own = re.split(r"^Options of vLLM", support.quern(command, "--help").stdout, flags=re.M)[0]
    rows = re.findall(r"^ +(?:-\w, )?--([a-z][a-z-]*)\b(.*)$", own, re.M)
    return {
        name: found[1]
        for name, row in rows
        if (found := re.search(r"\(default:? ([^;)]*)", row))}


def shown(command, environment=None):
    done = support.quern("config",
                         "show",
                         command,
                         env={"HOME": "/h", "PATH": "/", **(environment or {})})
    assert done.returncode == 0, done.stderr
    return done.stdout


UNITS = {"MiB": 2 ** 20, "GiB": 2 ** 30, "s": 1}


@pytest.mark.parametrize("command", ["serve", "run", "preflight"])
def test_config_show_and_the_help_tell_the_same_defaults(command):
    text = shown(command)
    values = dict(re.findall(r"^([a-z-]+) = (.*)$", text, re.M))
    later = dict(re.findall(r"^# ([a-z-]+): (.*)$", text, re.M))
    compared = 0
    for name, told in defaults_of(command).items():
        if name in values and values[name] not in ("true", "false"):
            number, _, unit = told.partition(" ")
            is_size = unit in UNITS and number.isdigit()
            assert values[name] == (str(int(number) * UNITS[unit]) if is_size else
                                    told if not told[0] == "$" else "/h/.local/state/quern"
                                    ) or told.startswith(values[name]), (name, told)
            compared += 1
        elif name in later:
            assert later[name].startswith(told), (name, told, later[name])
            compared += 1
    assert compared > 10, (values, later)


def test_the_state_directory_is_the_same_everywhere():
    assert "state-dir = /h/.local/state/quern" in shown(
        "serve") and "state-dir = /x/quern" in shown("serve", {"XDG_STATE_HOME": "/x"})
    assert "lookahead-lines = 4096" in shown("serve") and "(default 4096)" in words_of(
        PAGES / "quern-serve.1")
    done = support.quern("fsck", env={"HOME": "/nowhere/h", "PATH": "/"})
    assert done.returncode == 4 and "/nowhere/h/.local/state/quern" in done.stderr, done.stderr


def test_the_first_page_lists_each_exit_status_of_the_code():
    code = (PAGES.parents[1] / "src/app/cli/exit_status.h").read_text()
    section = words_of(PAGES / "quern.1").split(".SH EXIT STATUS")[1].split(".SH")[0]
    assert set(re.findall(r"EXIT_\w+ = (\d+)", code)) == set(re.findall(r"^(\d+)$", section, re.M))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_is_asked_in_three_ways(command):
    answers = {(done.returncode, done.stdout)
               for done in (support.quern(command, "--help"), support.quern(command, "-h"),
                            support.quern("help", command))}
    assert len(answers) == 1 and answers.pop()[0] == 0


def test_help_of_nothing_and_of_what_is_not_there():
    assert support.quern("help").stdout == support.quern("--help").stdout
    done = support.quern("help", "nonesuch")
    assert done.returncode == 2 and "no command 'nonesuch'" in done.stderr


# --- config check ---

WRONG = ["port = 80x1", "modle = smollm2", "max-num-seqs = -4", "nonsense", "block-size = 17",
         "model = smollm2"]


def checked(tmp_path, lines, *words, **environment):
    file = tmp_path / "config"
    file.write_text("".join(f"{line}\n" for line in lines))
    return support.quern("config", "check", *words, "--config", file, env={
        "HOME": str(tmp_path), "PATH": "/", **environment}), file


def test_config_check_names_every_wrong_setting_with_its_line(tmp_path):
    done, file = checked(tmp_path, WRONG)
    said = done.stderr.splitlines()
    assert done.returncode == 2 and not done.stdout and len(said) == len(WRONG) - 1
    for line, what in enumerate(("--port: '80x1'", "no option --modle; did you mean --model?",
                                 "--max-num-seqs: -4", "not 'key = value'", "--block-size 17"), 1):
        assert any(text.startswith(f"quern config: {file}:{line}: {what}") or
                   f"{file}:{line}: " in text and what in text for text in said), (what, said)
    done, _ = checked(tmp_path, ["model = smollm2"], QUERN_PORT="x", QUERN_DRAIN_SECONDS="never")
    assert done.returncode == 2 and [line.split(":")[1].strip()
                                     for line in done.stderr.splitlines()
                                     ] == ["QUERN_PORT", "QUERN_DRAIN_SECONDS"]


def test_config_check_compares_settings_as_serve_does(tmp_path):
    lines = ["model = smollm2", "ssl-keyfile = key.pem"]
    done, file = checked(tmp_path, lines)
    assert done.returncode == 2
    assert f"{file}:2: --ssl-keyfile needs --ssl-certfile" in done.stderr
    assert checked(tmp_path, lines, "run")[0].returncode == 0


VARIABLES = set(
    re.findall(r"QUERN_[A-Z_]*[A-Z]", "".join(page.read_text() for page in PAGES.glob("*.1"))))


def test_config_check_names_a_variable_that_is_no_setting(tmp_path):
    """And none that a page names."""
    assert {"QUERN_CONFIG", "QUERN_API_KEYS", "QUERN_WEBHOOK_SECRET"} <= VARIABLES
    done, file = checked(tmp_path, ["model = smollm2"], QUERN_MODLE="x", QUERN_PORT="1",
                         **{name: "1" for name in VARIABLES})
    said = f"{file}: 1 setting\nQUERN_MODLE: no setting has this name, so it is ignored\n"
    assert done.returncode == 0 and done.stdout == said + "the settings are right\n"


def test_config_check_says_what_it_read(tmp_path):
    done, file = checked(tmp_path, ["model = smollm2", "# a comment", "port = 1"])
    assert done.returncode == 0
    assert done.stdout == f"{file}: 2 settings\nthe settings are right\n"
    done = support.quern("config", "check", env={"HOME": str(tmp_path), "PATH": "/"})
    assert done.returncode == 0 and f"{tmp_path}/.config/quern/config: " in done.stdout
    assert "left to the command line" not in done.stdout
    assert support.quern("config", "check", "--config", "/nowhere").returncode == 4


def test_the_page_of_serve_has_every_route_and_no_other():
    section = words_of(PAGES / "quern-serve.1").split(".SH ROUTES")[1].split(".SH ")[0]
    told = {}
    for entry in section.split(".TP\n")[1:]:
        path, text = entry.split("\n", 1)
        told[path.removeprefix(".B ")] = set(re.findall(r"(?:^|\. )([A-Z]+): ",
                                                        text.replace("\n", " ")))
    document = json.loads(support.quern("openapi").stdout)
    assert told == {
        path: {method.upper() for method in methods}
        for path, methods in document["paths"].items()}
