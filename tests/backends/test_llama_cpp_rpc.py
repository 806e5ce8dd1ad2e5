"""Reaching another tier, and being one: real servers on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import llama_cpp
from backends.base import BackendError, LoadRequest
from backends.install import rpc_line
from backends.llama_cpp import engine_log, rpc, serve


def refusal(call, *arguments):
    with pytest.raises(BackendError) as refused:
        call(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_servers_device_is_an_accelerator_without_an_address(endpoint):
    first, *_ = llama_cpp.describe((endpoint,)).accelerators
    assert first.id.startswith("RPC")
    assert first.name == f"RPC device {first.id[3:]}"
    assert first.memory_bytes == pytest.approx(psutil.virtual_memory().total, rel=0.01)
    assert first.id not in [each.id for each in llama_cpp.describe().accelerators], "only those asked for"
    assert llama_cpp.describe((endpoint,)).accelerators[0] == first, "a second time it is the same device"


def test_nothing_that_is_told_names_a_machine(endpoint, llama_file, capfd):
    path, _ = llama_file()
    session = llama_cpp.load(LoadRequest(path, "f32", rpc=(endpoint,)))
    session.allocate(64, 1)
    assert "127.0.0.1" not in repr(session.facts()) + repr(session.memory())
    session.close()
    assert capfd.readouterr() == ("", "")


def test_where_nothing_listens_the_error_says_what_to_start():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{closed.getsockname()[1]}"
    message = refusal(llama_cpp.describe, (endpoint,))
    assert message == f"no tier answers at {endpoint}: start one there with tokenroof serve-tier --bind {endpoint}"


def test_what_speaks_another_protocol_is_no_tier():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(64)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert "no llama.cpp RPC server" in refusal(llama_cpp.describe, (f"127.0.0.1:{server.getsockname()[1]}",))
        thread.join()


def test_a_tier_that_serves_another_is_said_to(start_server, monkeypatch):
    monkeypatch.setattr(rpc, "_PATIENCE_S", 0.2)
    with start_server() as (endpoint, _):
        host, port = endpoint.split(":")
        with socket.create_connection((host, int(port))) as other:
            other.sendall(rpc._HELLO)
            other.recv(64)
            assert "one client at a time" in refusal(llama_cpp.describe, (endpoint,))


@pytest.mark.parametrize(
    "endpoint", ["", "nohost", ":50052", "host:", "host:port", "host:0", "host:65536", "::1:50052"]
)
def test_what_is_no_endpoint_is_refused(endpoint):
    assert "write HOST:PORT" in refusal(llama_cpp.describe, (endpoint,))


@given(st.from_regex(r"[a-z0-9.-]{1,30}", fullmatch=True), st.integers(1, 65_535))
def test_an_endpoint_is_a_host_and_a_port(host, port):
    assert rpc.split_endpoint(f"{host}:{port}") == (host, port)


def test_a_server_is_used_once(endpoint):
    assert "named twice" in refusal(llama_cpp.describe, (endpoint, endpoint))


def test_a_build_without_rpc_is_told_how_to_get_it(monkeypatch):
    """ggml's registry is asked for a backend that this build has not, as one without RPC answers for it."""
    function = rpc.ggml.function

    def without_rpc(name, *types):
        real = function(name, *types)
        return (lambda _: real(b"RPC that is not there")) if name == "ggml_backend_reg_by_name" else real

    monkeypatch.setattr(rpc.ggml, "function", without_rpc)
    message = refusal(rpc.procedure, "ggml_backend_rpc_add_server")
    assert 'CMAKE_ARGS="-DGGML_RPC=ON"' in message
    assert "--force-reinstall --no-cache-dir llama-cpp-python" in message
    assert rpc_line("Windows").startswith('$env:CMAKE_ARGS = "-DGGML_RPC=ON"; pip install')


def test_a_tier_lends_the_cpu_and_its_memory():
    (lent,) = serve.served("cpu")
    assert lent.id == "CPU"
    assert lent.memory_bytes == pytest.approx(psutil.virtual_memory().total, rel=0.01)
    assert "no device 'CUDA7': it has cpu" in refusal(serve.served, "CUDA7")


def test_a_port_that_is_taken_is_an_error(endpoint):
    assert refusal(serve.serve, endpoint, 1, "cpu") == f"cannot listen at {endpoint}: address already in use"


def test_an_interrupt_ends_a_server(start_server):
    with start_server() as (_, process):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == -signal.SIGINT


def test_a_server_that_dies_in_mid_run_ends_the_process_with_one_line(start_server, llama_file):
    script = (
        "import sys; from pathlib import Path; import numpy as np\n"
        "from backends import llama_cpp\n"
        "from backends.base import LoadRequest\n"
        "session = llama_cpp.load(LoadRequest(Path(sys.argv[1]), 'f32', rpc=(sys.argv[2],)))\n"
        "session.allocate(8192, 1)\n"
        "for step, _ in enumerate(session.decode(np.zeros((1, 8192), np.int32))):\n"
        "    if step == 3: print('decoding', flush=True)\n"
        "    if step == 4: sys.stdin.readline()\n"
    )
    path, _ = llama_file()
    with start_server() as (endpoint, server):
        command = [sys.executable, "-c", script, str(path), endpoint]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as client:
            assert client.stdout.readline() == "decoding\n"
            server.kill()
            server.wait()
            _, said = client.communicate("\n")
    assert client.returncode == -signal.SIGABRT
    assert said == "llama.cpp: Remote RPC server crashed or returned malformed response\n"


def test_last_words_are_without_paths():
    said = "/home/someone/llama.cpp/ggml/src/ggml.c:1234: GGML_ASSERT(a == b) failed\n"
    assert engine_log.last_words(said) == "llama.cpp: GGML_ASSERT(a == b) failed"
