"""The server answers on loopback, to us, and stops when it is told to."""

import asyncio
import re
import signal
import socket
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from flowbias.apps.explorer import server as explorer_server
from flowbias.ground.arguments import InputError
from tests.apps.explorer.running import running

pytest.importorskip("bokeh", reason="the extra `explore` is not installed")

STATIC = ("/explorer/explorer.css", "/static/js/bokeh.min.js")
MEGABYTE = 2**20


def test_the_page_and_its_files_are_there(server):
    status, _, body = server.get("/?view=geometry")
    assert status == 200
    assert b"The line of solutions" in body
    assert [server.get(path)[0] for path in STATIC] == [200, 200]
    assert server.get("/", Host=f"LOCALHOST:{server.port}")[0] == 200


@pytest.mark.parametrize("path", ["/", *STATIC, "/ws", "/nowhere"])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "localhost:1",
        "127.0.0.1.evil.example:{port}",
        "localhost.:{port}",
        "[::1]:{port}",
        "",
    ],
)
def test_other_host_names_are_refused(server, path, host):
    """A name that points here by DNS rebinding gets nothing, not even a file."""
    status, _, body = server.get(path, Host=host.format(port=server.port))
    assert status == 403
    assert body.startswith(b"Refused")


@pytest.mark.parametrize(
    ("origin", "ours"),
    [
        ("http://127.0.0.1:{port}", True),
        ("http://localhost:{port}", True),
        ("http://evil.example", False),
        ("https://127.0.0.1:{port}", False),
        ("http://127.0.0.1:1", False),
        ("null", False),
        ("http://[", False),
        ("http://127.0.0.1:{port}/", False),
    ],
)
def test_only_our_own_page_may_connect(server, origin, ours):
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec_WebSocket_Version": "13",
        "Origin": origin.format(port=server.port),
    }
    status = server.get("/ws", **upgrade)[0]
    # Ours lacks the token of a session, of which the websocket itself complains.
    assert (status == 403) != ours


@pytest.mark.parametrize(
    ("site", "mode", "dest", "served"),
    [
        ("none", "navigate", "document", True),
        ("same-origin", "no-cors", "script", True),
        # A link on another page may be followed; what that page embeds may not be had.
        ("cross-site", "navigate", "document", True),
        ("cross-site", "navigate", "iframe", False),
        ("cross-site", "no-cors", "image", False),
        ("same-site", "no-cors", "script", False),
    ],
)
def test_other_pages_can_link_to_us_and_no_more(server, site, mode, dest, served):
    said = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": dest}
    assert server.get("/explorer/theme.js", **said)[0] == (200 if served else 403)


@pytest.mark.parametrize(
    "path",
    [
        # What packages on top of Bokeh would serve, one of them by importing what is named here.
        "/components/antigravity/x/__css__/y",
        "/autoload.js?bokeh-autoload-element=1",
        "/metadata",
        "/favicon.ico",
        "/static/js/bokeh.js",
        "/static/extensions/panel/panel.min.js",
        "/explorer/page.html.jinja",
        "http://evil.example/",
    ],
)
def test_what_the_page_does_not_need_is_not_served(server, path):
    status, _, body = server.get(path)
    assert (status, body) == (403, explorer_server.REFUSAL)


def test_nobody_chooses_the_name_of_a_session(server):
    assert server.get("/?bokeh-session-id=guessed")[0] == 403


def test_everything_that_the_page_names_is_served(server):
    named = re.findall(r'(?:src|href)="([\w/.]+)"', server.get("/")[2].decode())
    assert {"/", "/ws", *(f"/{path}" for path in named)} == set(explorer_server.PATHS)


@pytest.mark.parametrize(
    "path",
    [
        "/explorer/../server.py",
        "/explorer/%2e%2e/server.py",
        "/explorer/..%2fserver.py",
        "/explorer/%2e%2e%2fserver.py",
        "/explorer/..%5cserver.py",
        "/explorer/%252e%252e/server.py",
        "/explorer//etc/passwd",
        "/explorer/%2fetc%2fpasswd",
        "/static/%2e%2e/%2e%2e/server.py",
        "/static/extensions/panel/%2e%2e/%2e%2e/config.py",
    ],
)
def test_no_path_leads_out_of_the_folder(server, path):
    status, _, body = server.get(path)
    assert status in (400, 403, 404)
    assert b"import" not in body
    assert b"root:" not in body


def test_every_answer_carries_the_headers_that_keep_others_out(server):
    for path in ("/", *STATIC, "/nowhere"):
        headers = server.get(path)[1]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Access-Control-Allow-Origin"] is None


def test_the_page_may_load_nothing_from_elsewhere(server):
    body = server.get("/")[2].decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', body).group(1)
    assert "default-src &#39;none&#39;" in policy
    assert "unsafe-eval" not in policy
    scripts = re.findall(r"<script[^>]*>", body)
    nonce = re.search(r"nonce-([\w-]+)", policy).group(1)
    assert len(scripts) > 3
    assert all(nonce in tag or "application/json" in tag for tag in scripts)
    assert nonce not in server.get("/")[2].decode()
    # Nothing but names in the documentation of formats may look like an address.
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//[^\"]+", body) == []


def resident(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) * 1024


@pytest.mark.parametrize(
    "head", ["Content-Length: 1073741824", "Transfer-Encoding: chunked"], ids=["length", "chunked"]
)
def test_a_large_body_is_not_read(server, head):
    before = resident(server.process)
    request = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{head}\r\n\r\n".encode()
    chunk = b"100000\r\n" + bytes(MEGABYTE) + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(request)
        sent = 0
        try:
            while sent < 256:
                connection.sendall(chunk)
                sent += 1
        except (BrokenPipeError, ConnectionResetError):
            pass
    # Closed long before the end; what lies in the buffers of the sockets does not count.
    assert sent < 64
    assert resident(server.process) - before < 32 * MEGABYTE
    assert server.get("/")[0] == 200


@pytest.mark.parametrize(
    ("size", "refused"), [(explorer_server.LARGEST_MESSAGE + 1, True), (2**30, True), (1000, False)]
)
def test_a_large_message_is_refused(server, size, refused):
    """What an upload beyond its limit meets, should a page send it all the same."""
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    token = re.search(r'"token":"([^"]+)"', server.get("/")[2].decode()).group(1)

    async def talk():
        # A page that computes on a busy machine answers late: 20 s, the default, were not enough.
        request = HTTPRequest(
            f"ws://127.0.0.1:{server.port}/ws",
            headers={"Origin": server.address.rstrip("/")},
            connect_timeout=300,
            request_timeout=300,
        )
        connection = await websocket_connect(request, subprotocols=["bokeh", token])
        # The head of a text frame with a mask: it announces `size` bytes, of which none follow.
        await connection.protocol.stream.write(b"\x81\xff" + size.to_bytes(8, "big") + bytes(4))
        try:
            # A few greetings, then the end of the connection or silence.
            while await asyncio.wait_for(connection.read_message(), 20 if refused else 1):
                pass
        except TimeoutError:
            return False
        return True

    # Closed at once, while the rest of a short one is waited for.
    assert asyncio.run(talk()) == refused
    assert server.get("/")[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf",
    ],
    ids=["nothing", "half a line", "half a head", "half a body"],
)
def test_a_connection_that_falls_silent_is_closed(monkeypatch, sent):
    from tornado.iostream import StreamClosedError
    from tornado.tcpclient import TCPClient

    monkeypatch.setattr(explorer_server, "IDLE_SECONDS", 0.2)

    async def talk():
        port = explorer_server.free_port(0)
        with ThreadPoolExecutor(1) as pool:
            server = explorer_server.make_server(port, pool)
            server.start()
            try:
                stream = await TCPClient().connect("127.0.0.1", port)
                await stream.write(sent)
                # Until the server closes; far longer than it should take, so that none fails for
                # a busy machine.
                with suppress(StreamClosedError):
                    await asyncio.wait_for(stream.read_until_close(), 60)
            finally:
                server.stop()

    asyncio.run(talk())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_busy_port_is_said_the_next_one_taken_and_stopping_is_all_well(how):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        with running(port=busy) as started:
            assert started.port != busy
            assert f"port {busy} is busy or not allowed: taking {started.port}" in "".join(
                started.said
            )
            assert started.get("/")[0] == 200
            code, said = started.stop(how)
    assert code == 0
    assert "Traceback" not in said
    assert said.endswith("stopped\n")


def test_a_free_port_is_taken_as_it_is():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert explorer_server.free_port(free) == free


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none(port):
    with pytest.raises(InputError, match=f"--port: must lie in 0..65535, got {port}"):
        explorer_server.free_port(port)


def test_a_missing_extra_is_named(monkeypatch):
    found = explorer_server.importlib.util.find_spec
    monkeypatch.setattr(
        explorer_server.importlib.util,
        "find_spec",
        lambda name: None if name == "bokeh" else found(name),
    )
    said = []
    with pytest.raises(InputError, match=r'pip install "flowbias\[explore\]"'):
        explorer_server.serve(0, open_browser=False, say=said.append)
    assert said == []


@pytest.mark.parametrize("outcome", [False, webbrowser.Error("none")], ids=["false", "error"])
def test_without_a_browser_the_address_is_said(monkeypatch, outcome):
    def no_browser(address):
        if outcome:
            raise outcome
        return outcome

    monkeypatch.setattr(webbrowser, "open", no_browser)
    said = []
    explorer_server._open("http://127.0.0.1:5210/", said.append)
    assert said == ["no browser was found: open http://127.0.0.1:5210/ yourself"]


def test_with_a_browser_nothing_more_is_said(monkeypatch):
    opened, said = [], []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    explorer_server._open("http://127.0.0.1:5210/", said.append)
    assert (opened, said) == (["http://127.0.0.1:5210/"], [])
