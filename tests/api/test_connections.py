# SPDX-License-Identifier: Apache-2.0
"""Clients that take all connections and send nothing, or a header block byte by byte, and a good
client beside them. The server's clock is moved instead of waited for."""
import contextlib, os, select, socket

import pytest

import support

ECHO = ("--model", "smollm2=echo")
GET = b"GET /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
pytestmark = pytest.mark.usefixtures("many_files")


@pytest.fixture
def clock(tmp_path):
    return support.Clock(tmp_path)


def dial(server, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", server.port),
                                    timeout=60,
                                    source_address=(source, 0))


def ask(server, source="127.0.0.1"):
    with dial(server, source) as connection:
        connection.sendall(GET)
        data = b""
        while piece := connection.recv(65536):
            data += piece
    return int(data.split()[1])


def is_closed(connection):
    """True once the server has closed it; what it said is read."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def flood(stack, server, count, said=b"", source="127.0.0.1"):
    connections = [stack.enter_context(dial(server, source)) for _ in range(count)]
    for connection in connections:
        connection.sendall(said)
    return connections


@pytest.mark.parametrize("said", [b"", b"GET /v1/fi"], ids=["silent", "half a header block"])
def test_idle_connections_shut_nobody_out(tmp_path, clock, said):
    with support.serving(tmp_path / "state", *ECHO,
                         environment=clock.environment) as server, contextlib.ExitStack() as stack:
        began = clock.now()
        is_young = lambda: clock.now(
        ) - began < 10  # on a slow machine the oldest may have had their 10 s for a header block
        # Two addresses fill all places: 896 is the most of one.
        idle = flood(stack, server, 896, said) + flood(stack, server, 128, said, "127.0.0.2")
        # Each accepted connection is a file of the server: until then it waits in the listener's
        # queue, without an age.
        files = lambda: len(os.listdir(f"/proc/{server.process.pid}/fd"))
        support.until(lambda: files() >= len(idle) or not is_young())
        assert files() < 2 * len(idle), "no socket pair before a request"
        clock.move(2)
        for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            assert ask(server, source) == 200
        support.until(lambda: any(map(is_closed, idle)))
        closed = sum(map(is_closed, idle))
        assert closed <= 8 or not is_young(), "only the ones idle longest went"


def test_one_address_leaves_places_for_others(tmp_path, clock):
    with support.serving(tmp_path / "state", *ECHO,
                         environment=clock.environment) as server, contextlib.ExitStack() as stack:
        flood(stack, server, 1100)
        assert ask(server, "127.0.0.9") == 200, "without waiting until anyone is idle long"


def leave(server, connections):
    """Closes them; the server has seen it when another has a place."""
    for connection in connections:
        connection.close()
    support.until(lambda: ask(server) == 200)


def test_the_bound_of_an_address_can_be_set(tmp_path, clock):
    with support.serving(tmp_path / "state", *ECHO, "--connections-per-address", "4", environment=clock.environment) as server, \
            contextlib.ExitStack() as stack:
        first = support.within(1, lambda: flood(stack, server, 4), lambda _: ask(server) == 503,
                               lambda first: leave(server, first))
        assert ask(server, "127.0.0.2") == 200
        clock.move(2)
        assert ask(server) == 200
        support.until(lambda: any(map(is_closed, first)))
        assert sum(map(is_closed, first)) == 1, [is_closed(c) for c in first]


@pytest.mark.parametrize("said,answer", [(b"", b""), (b"GET /v1/fi", b"408")],
                         ids=["silent", "half a header block"])
def test_the_time_for_the_first_header_block_starts_at_the_accept(tmp_path, clock, said, answer):
    with support.serving(tmp_path / "state", *ECHO,
                         environment=clock.environment) as server, dial(server) as connection:
        connection.sendall(said)
        assert ask(server) == 200, "the accept is done"
        clock.move(3)
        assert ask(server) == 200 and not select.select([connection], [], [], 0.5)[0]
        clock.move(9)
        data = b""
        while piece := connection.recv(4096):
            data += piece
        assert data.split(b" ")[1:2] == ([answer] if answer else [])


def test_a_kept_connection_may_rest_between_two_requests(tmp_path, clock):
    with support.serving(tmp_path / "state", *ECHO,
                         environment=clock.environment) as server, dial(server) as connection:
        for _ in range(3):
            connection.sendall(GET.replace(b"Connection: close\r\n", b""))
            data = b""
            while b"has_more" not in data:
                data += connection.recv(65536)
            clock.move(60)
        clock.move(20)
        assert connection.recv(10) == b""
