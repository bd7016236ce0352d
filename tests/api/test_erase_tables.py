# SPDX-License-Identifier: Apache-2.0
"""`quern erase` of runs over tables: a person's rows go, also those over several lines, and in all
runs that share a file."""
import csv, hashlib, json, random, shutil

import pytest

import support
from test_erase import salt_of
from test_proof import Home
from test_run_parquet import STAND_IN
from test_table_rest import BODIES, Upstream

SEED = support.SEED
PEOPLE = 24
WHO, OTHER = "p-07", "p-23"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("home"))


def rows_of(count=PEOPLE):
    """Ids, names, and notes over some lines, with quotes, separators and empty lines in them."""
    return [[f"p-{i:02d}", f"Nameless {i}", f'note {i}, "quoted"' + "\r\n\nmore of it\n" * (i % 3)]
            for i in range(count)]


def write_people(path, rows, ends="\n", delimiter=","):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator=ends, delimiter=delimiter)
        writer.writerow(["id", "name", "notes"])
        writer.writerows(rows)


def score(home, folder, source, target, *words, id_="id", model=("--model", "smollm2=echo"),
          prompt="Rate {{ name }}: {{ notes }}"):
    (folder / "p.jinja").write_text(prompt)
    done = support.quern("run", "-q", "-i", source, "-o", target, *model, "--prompt", "p.jinja",
                         *(["--id", id_] if id_ else []), *words, env=home.variables, cwd=folder)
    assert done.returncode == 0, done.stderr


def verify(home, folder, out, good=True):
    done = home.quern("verify", folder / out, "--json", "--skip-models")
    said = json.loads(done.stdout) if done.stdout else None
    assert bool(said and said["is_good"]) == (done.returncode == 0)
    if good:
        assert said and said["is_good"], said
    return said, done.stderr


def erase(home, folder, outs, *arguments, status=0):
    done = home.quern("erase", *[folder / out for out in outs], *arguments)
    assert done.returncode == status, (done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


def table_of(path, delimiter=","):
    with open(path, newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


def check_by_hand(folder, source, out):
    """The sums of input and output, without quern; the erased lines of both."""
    manifest = json.loads((folder / f"{out}.manifest.json").read_text())
    salts = json.loads((folder / f"{out}.manifest.salts.json").read_text())
    gone = {}
    for what, name in (("input", source), ("output", out)):
        leaves = {}
        for erasure in salts["erasures"]:
            leaves |= {int(text.split()[0]): text.split()[1] for text in erasure["files"][what]}
        whole = hashlib.sha256()
        lines = (folder / name).read_bytes().split(b"\n")
        assert lines.pop() == b""
        for i, line in enumerate(lines):
            salt = salt_of(salts["salts"][what], i)
            assert (salt is None) == (i + 1 in leaves) and (salt or not line)
            leaf = hashlib.sha256(salt + line + b"\n").hexdigest() if salt else leaves[i + 1]
            whole.update(leaf.encode() + b"\n")
        assert whole.hexdigest() == manifest[what]["lines_sha256"]
        gone[what] = sorted(leaves)
    return gone


@pytest.fixture(scope="module")
def made(home):
    """Two runs, the second over the output of the first: scored.csv and mails.csv."""
    folder = home.folder / "run"
    folder.mkdir()
    write_people(folder / "people.csv", rows_of())
    score(home, folder, "people.csv", "scored.csv")
    score(home, folder, "scored.csv", "mails.csv", "--limit", "10")
    return folder


@pytest.fixture
def alone(copy):
    """The first run, without the one that shares a file with it."""
    for path in copy.glob("mails.csv*"):
        path.unlink()
    return copy


def test_a_row_over_several_lines_goes_and_all_others_stay_proven(home, alone):
    before = {name: (alone / name).read_bytes().split(b"\n") for name in ("people.csv", "scored.csv")}
    manifest = (alone / "scored.csv.manifest.json").read_bytes()
    said = erase(home, alone, ["scored.csv"], "--custom-id", "p-08", "--reason", "asked")
    assert "1 request was erased, 20 lines in all files" in said
    gone = check_by_hand(alone, "people.csv", "scored.csv")
    for what, name in (("input", "people.csv"), ("output", "scored.csv")):
        lines = (alone / name).read_bytes().split(b"\n")
        assert len(lines) == len(before[name])
        assert len(gone[what]) == {"input": 7, "output": 13}[what]
        assert [line for i, line in enumerate(lines) if i + 1 not in gone[what]] == [
            line for i, line in enumerate(before[name]) if i + 1 not in gone[what]]
        assert b"p-08" not in b"\n".join(lines) and b"less 8" not in b"\n".join(lines)
        assert [row[0] for row in table_of(alone / name) if row] == [
            "id", *(f"p-{i:02d}" for i in range(PEOPLE) if i != 8)]
    assert (alone / "scored.csv.manifest.json").read_bytes() == manifest
    [record] = verify(home, alone, "scored.csv")[0]["erasures"]
    assert record["requests"] == 1 and record["rows"] == [9] and record["reason"] == "asked"
    assert "p-08" not in (alone / "scored.csv.manifest.salts.json").read_text()
    assert "all other lines are those" in home.quern("verify", alone / "scored.csv",
                                                     "--skip-models").stdout


def test_no_guess_of_an_erased_row_can_be_checked(home, alone):
    """The requests are in no file: their salts go as well, since their sum would tell a guess."""
    salts = json.loads((alone / "scored.csv.manifest.salts.json").read_text())["salts"]
    names = {"input": "people.csv", "output": "scored.csv"}
    at = {what: next(i for i, line in enumerate((alone / name).read_bytes().split(b"\n"))
                     if line.startswith(WHO.encode())) for what, name in names.items()}
    secret = [salts["requests"][0].split()[2], salt_of(salts["requests"], 7).hex(),
              *(salt_of(salts[what], at[what]).hex() for what in names)]
    erase(home, alone, ["scored.csv"], "--custom-id", WHO)
    gone = check_by_hand(alone, "people.csv", "scored.csv")
    assert all(at[what] + 1 in gone[what] for what in names)
    after = (alone / "scored.csv.manifest.salts.json").read_text()
    assert json.loads(after)["salts"]["requests"] == []
    assert not any(each in after for each in secret)
    for what, root in salts.items():
        assert root[0].split()[2] not in after, what


def test_requests_made_again_stay_proven(home, tmp_path):
    """With the file of `quern table` the salts of all other requests stay."""
    write_people(tmp_path / "in.csv", rows_of())
    score(home, tmp_path, "in.csv", "out.jsonl")
    requests = tmp_path / "requests.jsonl"
    done = home.quern("table", tmp_path / "in.csv", "--prompt", tmp_path / "p.jinja", "--id", "id",
                      "-o", requests)
    assert done.returncode == 0, done.stderr

    def log(who):
        done = home.quern("log", tmp_path / "out.jsonl", "--input", requests, "--custom-id", who)
        return done.returncode, done.stdout + done.stderr

    mine = requests.read_bytes()
    requests.write_bytes(mine.replace(b"Nameless 3", b"Nameless 4", 1))
    words = erase(home, tmp_path, ["out.jsonl"], "--custom-id", WHO, "--requests", requests,
                  status=3)
    assert "requests of the run" in words and "nothing was erased" in words
    requests.write_bytes(mine)
    assert log(WHO)[0] == log(OTHER)[0] == 0
    erase(home, tmp_path, ["out.jsonl"], "--custom-id", WHO, "--requests", requests)
    lines = requests.read_bytes().split(b"\n")
    assert lines[7] == b"" and len(lines) == PEOPLE + 1
    salts = json.loads((tmp_path / "out.jsonl.manifest.salts.json").read_text())
    assert [text.split()[0] for text in salts["erasures"][0]["files"]["requests"]] == ["8"]
    verify(home, tmp_path, "out.jsonl")
    assert log(WHO)[0] == 4 and log(OTHER)[0] == 0
    erase(home, tmp_path, ["out.jsonl"], "--custom-id", OTHER)
    words = "an erasure without --requests took the salts"
    status, said = log("p-01")
    assert status == 10 and words in said
    assert words in erase(home, tmp_path, ["out.jsonl"], "--custom-id", "p-01", "--requests",
                          requests, status=3)
    verify(home, tmp_path, "out.jsonl")
    done = home.quern("replay", tmp_path / "out.jsonl", "--input", requests)
    assert done.returncode != 0 and words in done.stderr, done.stderr


@pytest.mark.parametrize("ends, delimiter", [("\r\n", ","), ("\n", ";")])
def test_rows_by_number_keep_their_numbers(home, tmp_path, ends, delimiter):
    write_people(tmp_path / "in.csv", rows_of(), ends, delimiter)
    score(home, tmp_path, "in.csv", "out.csv", "--delimiter", delimiter, id_=None)
    for ids in (["9"], ["2", "24"], ["10", "1"]):
        arguments = [word for id_ in ids for word in ("--custom-id", id_)]
        assert f"{len(ids)} request" in erase(home, tmp_path, ["out.csv"], *arguments)
        words = erase(home, tmp_path, ["out.csv"], *arguments[:2], status=4)
        assert "nothing was erased" in words
    kept = [f"p-{i - 1:02d}" for i in range(1, 25) if i not in (1, 2, 9, 10, 24)]
    for name in ("in.csv", "out.csv"):
        assert [row[0] for row in table_of(tmp_path / name, delimiter)[1:] if row] == kept
    said, _ = verify(home, tmp_path, "out.csv")
    assert [one["rows"] for one in said["erasures"]] == [[9], [2, 24], [1, 10]]
    rest = "\n".join(str(i) for i in range(1, 25) if i not in (1, 2, 9, 10, 24))
    (tmp_path / "ids").write_text(rest)
    erase(home, tmp_path, ["out.csv"], "--ids", tmp_path / "ids")
    verify(home, tmp_path, "out.csv")
    assert len([row for row in table_of(tmp_path / "out.csv", delimiter) if row]) == 1


def test_tables_and_requests_in_any_mixture(home, tmp_path):
    """A table of JSONL, results as they are, a table of results of requests, a limit."""
    people = [dict(zip(("id", "name", "notes"), row)) | {"id": i} for i, row in enumerate(rows_of())]
    (tmp_path / "t.jsonl").write_bytes(b"\xef\xbb\xbf" + support.jsonl(people))
    score(home, tmp_path, "t.jsonl", "t.csv")
    erase(home, tmp_path, ["t.csv"], "--custom-id", "0", "--custom-id", "5")
    verify(home, tmp_path, "t.csv")
    assert [row[0] for row in table_of(tmp_path / "t.csv")[1:] if row] == [
        str(i) for i in range(PEOPLE) if i not in (0, 5)]
    write_people(tmp_path / "a.csv", rows_of())
    score(home, tmp_path, "a.csv", "a.jsonl", "--limit", "9")
    erase(home, tmp_path, ["a.jsonl"], "--custom-id", WHO, "--custom-id", OTHER)
    verify(home, tmp_path, "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_bytes().split(b"\n")
    assert len(lines) == 10 and [i for i, line in enumerate(lines) if not line] == [7, 9]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(
        support.jsonl([support.request(f"r{i}", f"text {i}")]) for i in range(6)))
    for out, words in (("r.csv", ()), ("part.jsonl", ("--limit", "4"))):
        done = support.quern("run", "-q", "-i", "r.jsonl", "-o", out, "--model", "smollm2=echo",
                             *words, env=home.variables, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    erase(home, tmp_path, ["r.csv", "part.jsonl"], "--custom-id", "r2", "--custom-id", "r5")
    verify(home, tmp_path, "r.csv")
    verify(home, tmp_path, "part.jsonl")
    assert [row[0] for row in table_of(tmp_path / "r.csv")[1:] if row] == ["r0", "r1", "r3", "r4"]
    assert b"r2" not in (tmp_path / "part.jsonl").read_bytes()


def test_what_a_table_does_not_show_goes_as_well(home, tmp_path):
    (tmp_path / "in.csv").write_text("name,notes\nAnn,x\nBob,y\n")
    with Upstream(BODIES) as up:
        score(home, tmp_path, "in.csv", "out.csv", id_=None, prompt="{{ name }}",
              model=("--upstream", f"up={up.site},models=fake"))
    assert "SECOND" in (tmp_path / "out.csv.rest.jsonl").read_text()
    assert "3 lines in all files" in erase(home, tmp_path, ["out.csv"], "--custom-id", "1")
    assert (tmp_path / "out.csv.rest.jsonl").read_bytes() == b"\n"
    verify(home, tmp_path, "out.csv")


def test_runs_that_share_a_file_are_erased_together(home, copy):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    for outs, other in ((["scored.csv"], "mails.csv"), (["mails.csv"], "scored.csv")):
        words = erase(home, copy, outs, "--custom-id", WHO, status=3)
        assert f"{other}.manifest.json as well" in words and "name both runs" in words
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    for who in (WHO, OTHER):
        erase(home, copy, ["scored.csv", "mails.csv"], "--custom-id", who)
        for out, source in (("scored.csv", "people.csv"), ("mails.csv", "scored.csv")):
            said, _ = verify(home, copy, out)
            assert who.encode() not in (copy / out).read_bytes()
            check_by_hand(copy, source, out)
    assert len(said["erasures"]) == 2
    words = erase(home, copy, ["scored.csv", "mails.csv"], "--custom-id", WHO, status=4)
    assert "no line of any input" in words
    words = erase(home, copy, ["scored.csv", "scored.csv.manifest.json"], "--custom-id", OTHER,
                  status=3)
    assert "scored.csv.manifest.json is named twice" in words
    done = home.quern("erase", copy / "scored.csv", copy / "mails.csv", "--custom-id", "x",
                      "--input", "people.csv")
    assert done.returncode == 2 and "of one run" in done.stderr


@pytest.mark.parametrize("draw", range(2))
def test_each_of_100_changed_bytes_after_an_erasure_is_found(home, copy, draw):
    rng = random.Random(f"{SEED} tables {draw}")
    print(f"seed {SEED}")
    erase(home, copy, ["scored.csv", "mails.csv"], "--custom-id", WHO, "--custom-id", OTHER)
    runs = {"scored.csv": ("people.csv", "scored.csv", "scored.csv.manifest.json",
                           "scored.csv.manifest.salts.json"),
            "mails.csv": ("scored.csv", "mails.csv", "mails.csv.manifest.json",
                          "mails.csv.manifest.salts.json")}
    for _ in range(50):
        out = rng.choice(list(runs))
        path = copy / rng.choice(runs[out])
        keep = path.read_bytes()
        content = bytearray(keep)
        at = rng.randrange(len(content))
        content[at] ^= rng.randrange(1, 256)
        path.write_bytes(content)
        said, _ = verify(home, copy, out, good=False)
        assert not (said and said["is_good"]), f"{out}: {path.name}, byte {at}"
        path.write_bytes(keep)
    for out in runs:
        verify(home, copy, out)


def test_a_kill_at_any_call_leaves_all_runs_old_or_ends_with_all_new(home, made, tmp_path):
    """Killed before each system call in turn; the same command ends what was begun, and so does one
    that names the second run alone."""
    old = {path.name: path.read_bytes() for path in made.iterdir()}
    states = {"old": 0, "between": 0, "new": 0}
    for number in range(1, 1000):
        folder = tmp_path / str(number)
        shutil.copytree(made, folder)
        command = ("erase", folder / "scored.csv", folder / "mails.csv", "--custom-id", WHO)
        done = support.quern(*command, env=home.variables | {"QUERN_FAULT": f"any:{number}:KILL"})
        if done.returncode == 0:
            break
        said = [verify(home, folder, out, good=False)[0] for out in ("scored.csv", "mails.csv")]
        is_old = all((folder / name).read_bytes() == content for name, content in old.items())
        if any(file["what"] == "erasing" for one in said for file in one["files"]):
            state = "between"
            assert not any(one["is_good"] for one in said), number
        else:
            state = "old" if is_old else "new"
            assert all(one["is_good"] for one in said), number
        states[state] += 1
        if state == "between" and number % 2:
            done = home.quern("erase", folder / "mails.csv")
            assert done.returncode == 0, (number, done.stderr)
            state = "new"
        done = home.quern(*command)
        assert done.returncode == (4 if state == "new" else 0), (number, state, done.stderr)
        for out in ("scored.csv", "mails.csv"):
            assert len(verify(home, folder, out)[0]["erasures"]) == 1, number
        assert not list(folder.glob("*.erasing")), number
        assert all(WHO.encode() not in path.read_bytes() for path in folder.iterdir())
        shutil.rmtree(folder)
    assert states["old"] > 10 and states["between"] > 5, states
    print(states)


def test_a_new_file_that_was_changed_after_a_kill_takes_no_place(home, copy):
    command = ("erase", copy / "scored.csv", copy / "mails.csv", "--custom-id", WHO)
    for number in range(1, 1000):
        support.quern(*command, env=home.variables | {"QUERN_FAULT": f"any:{number}:KILL"})
        if (copy / "scored.csv.manifest.json.erasing").exists():
            break
    mine = (copy / "people.csv").read_bytes()
    (copy / "people.csv.erasing").write_text("of another\n")
    words = erase(home, copy, ["mails.csv"], "--custom-id", OTHER, status=7)
    assert "was changed since an erasure was cut short" in words
    assert (copy / "people.csv").read_bytes() == mine


def test_tables_that_have_no_lines_of_their_own_are_refused_by_name(home, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/quern-parquet").write_text(STAND_IN)
    (tmp_path / "bin/quern-parquet").chmod(0o755)
    home = Home(tmp_path / "home")
    home.variables["PATH"] = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    people = [dict(zip(("id", "name", "notes"), row)) for row in rows_of(3)]
    (tmp_path / "in.parquet").write_bytes(support.jsonl(people))
    score(home, tmp_path, "in.parquet", "out.csv")
    words = erase(home, tmp_path, ["out.csv"], "--custom-id", "p-01", status=3)
    assert "the input " in words and "in.parquet is a Parquet file" in words
    assert "run the table as CSV or JSONL" in words
    write_people(tmp_path / "in.csv", rows_of(3))
    score(home, tmp_path, "in.csv", "out.parquet")
    words = erase(home, tmp_path, ["out.parquet"], "--custom-id", "p-01", status=3)
    assert "the output " in words and "out.parquet is a Parquet file" in words
    (tmp_path / "old.csv").write_bytes(b"id,name,notes\rp-00,Ann,x\rp-01,Ben,y\r")
    score(home, tmp_path, "old.csv", "old.out.csv")
    words = erase(home, tmp_path, ["old.out.csv"], "--custom-id", "p-01", status=3)
    assert "old.csv, line 1: it has parts of two rows" in words and "LF or CRLF" in words
    assert not list(tmp_path.glob("*.erasing")) and verify(home, tmp_path, "old.out.csv")


def test_a_decision_log_of_a_row(home, copy):
    """Of a table and a table of results, by the requests, after an erasure, and by row numbers."""
    def log(*words, status=0):
        done = support.quern("log", *words, "--format", "json", env=home.variables, cwd=copy)
        assert done.returncode == status, done.stderr
        said = json.loads(done.stdout) if done.stdout else None
        return said and {section["heading"]: {entry["label"]: entry["text"]
                                              for entry in section["entries"]}
                         for section in said["sections"]}, said, done.stderr

    for _ in range(2):
        told, said, _ = log("scored.csv", "--custom-id", OTHER)
        id_, name, notes = rows_of()[23]
        assert said["is_proven"] and said["custom_id"] == OTHER
        assert said["request"]["row"] == {"id": id_, "name": name, "notes": notes}
        asked = told["What was asked"]
        assert (asked["Column name"], asked["Column notes"]) == (name, notes)
        assert "template of the run" in asked["The words of the question"]
        assert told["What was answered"] == {
            "Answer": f"Rate {name}: {notes}", "Why the answer ended": "the model ended its answer"}
        assert "Table of the rows" in told["Whether this is what the run made"]
        erase(home, copy, ["scored.csv", "mails.csv"], "--custom-id",
              WHO if b"p-07" in (copy / "people.csv").read_bytes() else "p-02")
    _, _, words = log("scored.csv", "--custom-id", WHO, status=4)
    assert "lines of this run were erased" in words
    _, _, words = log("mails.csv", "--custom-id", OTHER, status=4)
    assert "mails.csv" in words
    write_people(copy / "n.csv", rows_of(4))
    score(home, copy, "n.csv", "n.out.csv", id_=None)
    assert log("n.out.csv", "--custom-id", "3")[1]["request"]["row"]["id"] == "p-02"
    done = support.quern("table", "n.csv", "--prompt", "p.jinja", "-o", "n.jsonl", cwd=copy)
    assert done.returncode == 0, done.stderr
    told, said, _ = log("n.out.csv", "--custom-id", "3", "--input", "n.jsonl")
    assert said["is_proven"] and "Rate Nameless 2" in told["What was asked"]["Question (user)"]
    assert said["result"]["id"] == "p-02"
    content = (copy / "n.out.csv").read_bytes()
    (copy / "n.out.csv").write_bytes(content.replace(b"Rate Nameless 0", b"Rate Nameless 9", 1))
    assert not log("n.out.csv", "--custom-id", "3", status=10)[1]["is_proven"]
