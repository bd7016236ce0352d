# SPDX-License-Identifier: Apache-2.0
"""HTTPS: the certificate's files, clients that speak TLS, and clients that speak something else,
slowly or not at all. The certificates are made here, by the openssl command. The server's clock is
moved instead of waited for."""
import contextlib, http.client, json, select, socket, ssl, subprocess

import httpx, openai
import pytest

import support
from certificate import make_certificate

ECHO = ("--model", "smollm2=echo")
GET = b"GET /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Certificates and keys, good and bad, by name."""
    folder = tmp_path_factory.mktemp("certificates")
    certificate, key = make_certificate(folder, "good")
    make_certificate(folder, "other")
    make_certificate(folder, "weak", ("-newkey", "rsa:1024"))
    openssl("pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out",
            folder / "encrypted.key")
    (folder / "encrypted.key").chmod(0o600)
    (folder / "open.key").write_bytes(key.read_bytes())
    (folder / "open.key").chmod(0o644)
    (folder / "both.pem").write_bytes(certificate.read_bytes() + key.read_bytes())
    (folder / "both.pem").chmod(0o600)
    (folder / "broken-chain.pem"
     ).write_bytes(certificate.read_bytes() +
                   b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (folder / "words.pem").write_text("no PEM at all\n")
    (folder / "words.pem").chmod(0o600)
    return folder


class SecureServer(support.Server):
    """A server with HTTPS, and a client that trusts its certificate only."""

    def __init__(self, state, files, *arguments, environment=None):
        super().__init__(state,
                         "--ssl-certfile",
                         files / "good.pem",
                         "--ssl-keyfile",
                         files / "good.key",
                         *arguments,
                         environment=environment)
        self.context = ssl.create_default_context(cafile=files / "good.pem")

    @property
    def url(self):
        return f"https://localhost:{self.port}/v1"

    def call(self, method, path, body=None, kind="application/json", headers=None):
        connection = http.client.HTTPSConnection("localhost",
                                                 self.port,
                                                 timeout=600,
                                                 context=self.context)
        with contextlib.closing(connection):
            body = json.dumps(body) if isinstance(body, dict) else body
            connection.request(
                method, path, body,
                {"Content-Type": kind, **(headers or {})} if body is not None else headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def dial(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=600)

    def secure(self):
        return self.context.wrap_socket(self.dial(), server_hostname="localhost")

    def asks(self):
        return self.call("GET", "/v1/files")[0]


@contextlib.contextmanager
def serving(tmp_path, files, *arguments, environment=None):
    server = SecureServer(tmp_path / "state", files, *ECHO, *arguments,
                          environment=environment).start()
    try:
        yield server
    finally:
        assert server.stop(600) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory, files):
    with serving(tmp_path_factory.mktemp("tls"), files) as server:
        yield server


def everything(connection):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    return data


# --- the files ---

@pytest.mark.parametrize("certificate,key,status,sentence", [
    ("good.pem", "none.key", 4, "--ssl-keyfile: cannot open FOLDER/none.key: No such file"),
    ("none.pem", "good.key", 4, "--ssl-certfile: cannot open FOLDER/none.pem: No such file"),
    ("good.pem", "other.key", 3,
     "the private key in FOLDER/other.key does not belong to FOLDER/good.pem"),
    ("good.pem", "encrypted.key", 3, "the private key in FOLDER/encrypted.key is encrypted"),
    ("good.pem", "open.key", 3,
     "--ssl-keyfile: FOLDER/open.key can be read by others than its owner (mode 644); chmod 600 it"
     ), ("good.pem", "words.pem", 3, "FOLDER/words.pem has no private key in PEM form"),
    ("words.pem", "good.key", 3, "FOLDER/words.pem has no certificate in PEM form"),
    ("good.key", "good.key", 3, "FOLDER/good.key has no certificate in PEM form"),
    ("broken-chain.pem", "good.key", 3,
     "a certificate of the chain in FOLDER/broken-chain.pem is damaged"),
    ("weak.pem", "weak.key", 3,
     "the certificate in FOLDER/weak.pem cannot be used: ee key too small"),
    ("good.pem", None, 3, "--ssl-certfile: FOLDER/good.pem can be read by others than its owner"),
    (None, "good.key", 2, "--ssl-keyfile needs --ssl-certfile"), ])
def test_files_that_cannot_be_used_end_the_start_with_the_reason(tmp_path, files, certificate, key,
                                                                 status, sentence):
    arguments = [
        *(["--ssl-certfile", files / certificate] if certificate else []),
        *(["--ssl-keyfile", files / key] if key else [])]
    done = support.quern("serve", "--port", 0, "--state-dir", tmp_path / "state", *ECHO, *arguments)
    assert sentence.replace("FOLDER",
                            str(files)) in done.stderr and done.returncode == status, done.stderr
    assert not (tmp_path / "state").exists(), "it ends before anything is opened"


@pytest.mark.parametrize("arguments,sentence", [
    (["--ssl-keyfile-password", "secret"
      ], "--ssl-keyfile-password is not supported: a password on a command line is no secret"),
    (["--ssl-ca-certs", "ca.pem"
      ], "--ssl-ca-certs is not supported: clients show no certificates here"),
    (["--ssl-cert-reqs=2"
      ], "--ssl-cert-reqs 2 is not supported (0): clients show no certificates here"),
    (["--ssl-ciphers", "ALL"], "--ssl-ciphers is not supported: "),
    (["--enable-ssl-refresh"
      ], "--enable-ssl-refresh is not supported: a new certificate is read on SIGHUP"), ])
def test_options_of_other_servers_are_refused_with_the_reason(arguments, sentence):
    done = support.quern("serve", *ECHO, *arguments)
    assert sentence in done.stderr and done.returncode == 2, done.stderr


def test_one_file_may_have_certificate_and_key(tmp_path, files):
    server = SecureServer(tmp_path / "state", files, *ECHO)
    server.arguments = ("--ssl-certfile", files / "both.pem", *ECHO)
    server.start()
    assert server.asks() == 200
    assert server.stop(600) == 0


@pytest.mark.parametrize("days,event", [(-2, "certificate_not_yet_valid"),
                                        (3, "certificate_expired"), (0, None)])
def test_a_certificate_that_is_not_in_force_is_served_with_a_warning(tmp_path, files, days, event):
    clock = support.Clock(tmp_path)
    clock.move(days * 86400)
    with serving(tmp_path, files, environment=clock.environment) as server:
        assert server.asks() == 200
        assert ("event=certificate_" in server.log_text()) == bool(event)
        if event:
            assert f"event={event} file={files / 'good.pem'}; clients will refuse it" in server.log_text(
            )


# --- clients that speak TLS ---

def test_the_openai_client_works_as_without(server, files):
    client = openai.OpenAI(base_url=server.url,
                           api_key="none",
                           max_retries=0,
                           http_client=httpx.Client(verify=server.context))
    message = [{"role": "user", "content": "hello"}]
    assert client.chat.completions.create(model="smollm2",
                                          messages=message).choices[0].message.content
    pieces = [
        piece.choices[0].delta.content or ""
        for piece in client.chat.completions.create(model="smollm2", messages=message, stream=True)]
    assert "".join(pieces)
    batch = server.create(support.jsonl([support.request(str(i), "hello") for i in range(50)]))
    assert len(server.results(server.wait(batch["id"]))[0]) == 50


def test_large_bodies_arrive_whole_in_both_directions(server):
    content = b"".join(b"%08d some bytes of a large file\n" % i for i in range(200000))
    file = server.upload(content, purpose="user_data")
    assert server.call("GET", f"/v1/files/{file['id']}/content") == (200, content)


def test_many_requests_of_one_connection_and_a_pipeline(server):
    with server.secure() as connection:
        connection.sendall(GET.replace(b"Connection: close\r\n", b"") * 20 + GET)
        assert everything(connection).count(b"HTTP/1.1 200 OK") == 21


@pytest.mark.parametrize("version,good", [(ssl.TLSVersion.TLSv1_1, False),
                                          (ssl.TLSVersion.TLSv1_2, True),
                                          (ssl.TLSVersion.TLSv1_3, True)])
def test_versions(server, files, version, good):
    context = ssl.create_default_context(cafile=files / "good.pem")
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with server.dial() as plain:
        if not good:
            with pytest.raises(ssl.SSLError, match="(?i)protocol.version|no.protocols.available"):
                context.wrap_socket(plain, server_hostname="localhost")
            return
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(GET)
            assert everything(connection).startswith(b"HTTP/1.1 200 OK")


def test_suites_without_forward_secrecy_are_not_spoken(server, files):
    context = ssl.create_default_context(cafile=files / "good.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256:AES128-GCM-SHA256:AES128-SHA")
    with server.dial() as plain, pytest.raises(ssl.SSLError, match="(?i)handshake.failure"):
        context.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.parametrize("offered,chosen", [(["h2", "http/1.1"], "http/1.1"), (["h2"], None),
                                            ([], None)])
def test_the_protocol_is_http_1_1(server, files, offered, chosen):
    context = ssl.create_default_context(cafile=files / "good.pem")
    context.set_alpn_protocols(offered)
    with server.dial() as plain:
        if offered and not chosen:
            with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
                context.wrap_socket(plain, server_hostname="localhost")
            return
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            assert connection.selected_alpn_protocol() == chosen


class Piecewise:
    """A client whose bytes of TLS the test itself carries to the server."""

    def __init__(self, server):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = server.context.wrap_bio(self.incoming,
                                           self.outgoing,
                                           server_hostname="localhost")
        self.socket = server.dial()

    def carry(self, call, bytes_at_once=65536):
        """Repeats a call until it has what it wants."""
        while True:
            wants = False
            try:
                result = call()
            except ssl.SSLWantReadError:
                wants = True
            data = self.outgoing.read()
            for at in range(0, len(data), bytes_at_once):
                self.socket.sendall(data[at:at + bytes_at_once])
            if not wants:
                return result
            got = self.socket.recv(65536)
            self.incoming.write(got) if got else self.incoming.write_eof()


def test_a_handshake_and_a_request_byte_by_byte(server):
    client = Piecewise(server)
    client.carry(client.tls.do_handshake, 1)
    client.carry(lambda: client.tls.write(GET), 1)
    assert client.carry(lambda: client.tls.read(12)) == b"HTTP/1.1 200"
    client.socket.close()


def test_a_client_that_says_its_last_word_with_the_request_gets_the_answer(server):
    client = Piecewise(server)
    client.carry(client.tls.do_handshake)
    client.tls.write(GET)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.socket.sendall(client.outgoing.read())
    data = everything(client.socket)
    assert len(data) > 200, "it cannot be read any more by Python's ssl, but it comes"
    client.socket.close()


# --- clients that speak something else ---

def test_plain_http_is_answered_in_plain_http(server):
    with server.dial() as connection:
        connection.sendall(GET)
        data = everything(connection)
    assert data.startswith(
        b"HTTP/1.1 400 Bad Request\r\n") and b"use https:// in place of http://" in data
    assert server.asks() == 200


@pytest.mark.parametrize("said", [
    b"\x00" * 100, b"\x80\x2e\x01\x00\x02", b"\x16\x03\x01\xff\xff" + b"x" * 20000,
    b"\x16\x03\x01\x00\x05hello", b"\x16" * 500, b"\x17\x03\x03\x00\x05hello"],
                         ids=[
                             "zeros", "SSL 2", "too long", "no hello", "first bytes", "data first"])
def test_what_is_no_tls_ends_the_connection(server, said):
    with server.dial() as connection:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
        assert len(everything(connection)) <= 7, "an alert at most"
    assert server.asks() == 200


def test_a_damaged_record_ends_the_connection_only(server):
    client = Piecewise(server)
    client.carry(client.tls.do_handshake)
    client.tls.write(GET)
    data = bytearray(client.outgoing.read())
    data[-1] ^= 1
    client.socket.sendall(data)
    everything(client.socket)
    client.socket.close()
    assert server.asks() == 200


def test_tls_to_the_plain_port_ends(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        with socket.create_connection(("127.0.0.1", server.port),
                                      timeout=600) as plain, pytest.raises(
                                          (ssl.SSLError, ConnectionResetError)):
            ssl._create_unverified_context().wrap_socket(plain)
        assert server.call("GET", "/v1/files")[0] == 200


# --- clients that are slow or silent ---

def is_open(connection):
    return not select.select([connection], [], [], 0)[0]


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"],
                         ids=["silent", "one byte", "half a hello"])
def test_the_clock_of_the_first_header_block_includes_the_handshake(tmp_path, files, said):
    clock = support.Clock(tmp_path)
    with serving(tmp_path, files,
                 environment=clock.environment) as server, server.dial() as connection:
        connection.sendall(said)
        assert server.asks() == 200, "the accept is done"
        clock.move(3)
        assert server.asks() == 200 and is_open(connection)
        clock.move(9)
        assert everything(connection) == b""


@pytest.mark.parametrize("said,answer", [(b"", b""), (b"GET /v1/fi", b"HTTP/1.1 408 ")],
                         ids=["silent", "half a header block"])
def test_a_client_that_is_silent_after_the_handshake(tmp_path, files, said, answer):
    clock = support.Clock(tmp_path)
    with serving(tmp_path, files,
                 environment=clock.environment) as server, server.secure() as connection:
        connection.sendall(said)
        assert server.asks() == 200
        clock.move(11)
        data = everything(connection)
        assert data.startswith(answer) and bool(data) == bool(answer)


def test_an_unfinished_handshake_leaves_its_place_to_others(tmp_path, files):
    clock = support.Clock(tmp_path)
    with serving(tmp_path, files, "--connections-per-address", "4",
                 environment=clock.environment) as server, contextlib.ExitStack() as stack:
        def fill():
            connections = [stack.enter_context(server.dial()) for _ in range(2)] + [
                stack.enter_context(server.secure()) for _ in range(2)]
            connections[0].sendall(b"\x16\x03\x01\x02\x00\x01\x00")
            return connections

        def is_turned_away(_):
            with server.dial() as another:
                return bool(select.select([another], [], [], 1)[0])

        def leave(connections):
            for connection in connections:
                connection.close()
            clock.move(2)

        support.within(1, fill, is_turned_away, leave)
        clock.move(2)
        assert server.asks() == 200


# --- keys over plain HTTP ---

def own_address():
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_key_that_others_can_read_on_its_way_is_worth_one_warning(tmp_path, files, secure):
    address = own_address()
    if address.startswith("127."):
        pytest.skip("this machine has loopback addresses only")
    state = tmp_path / "state"
    made = support.quern("key", "create", "--state-dir", state, "--name", "test")
    head = {"Authorization": f"Bearer {made.stdout.strip()}"}
    server = SecureServer(state, files) if secure else support.Server(state)
    server.arguments = (*server.arguments, *ECHO, "--host", "0.0.0.0")
    server.start()
    context = ssl._create_unverified_context()

    def ask(host, headers):
        connection = http.client.HTTPSConnection(
            host, server.port, context=context) if secure else http.client.HTTPConnection(
                host, server.port)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/files", headers=headers)
            return connection.getresponse().status

    assert ask("127.0.0.1", head) == 200 and ask(address, {}) == 401
    assert "event=key_over_plain_http" not in server.log_text()
    assert [ask(address, head) for _ in range(3)] == [200] * 3
    assert server.log_text().count("event=key_over_plain_http") == (0 if secure else 1)
    assert server.stop(600) == 0
