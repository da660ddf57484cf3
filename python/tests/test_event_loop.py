"""The event loop of `run`, on which unmodified code for asyncio runs."""

import asyncio
import contextvars
import gc
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from evaluated import never, twice

from thalweg.evaluations import EventLoop, EventLoopPolicy, await_readable, concurrent_proc, run, wait


def test_a_program_runs_on_it_and_it_is_a_loop_of_asyncio() -> None:
    async def main() -> tuple[Any, Any]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, asyncio.SelectorEventLoop)
        assert loop.time() == pytest.approx(time.monotonic(), abs=1)
        return loop, await asyncio.gather(asyncio.sleep(0.001, 1), twice(2, after=0))

    loop, results = run(main())
    assert results == [1, 4]
    assert type(loop) is EventLoop
    assert loop.is_closed()


def test_it_is_the_loop_of_a_policy_and_of_a_runner() -> None:
    async def main() -> type:
        return type(asyncio.get_running_loop())

    policy = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(EventLoopPolicy())
    try:
        assert asyncio.run(main()) is EventLoop
    finally:
        asyncio.set_event_loop_policy(policy)
    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            assert runner.run(main()) is EventLoop


def test_callbacks_run_in_order_and_cancelled_ones_not_at_all() -> None:
    loop = EventLoop()
    order: list[object] = []
    handles = [loop.call_soon(order.append, number) for number in range(4)]
    handles[1].cancel()
    late = loop.call_later(0.002, order.append, "late")
    loop.call_later(0.001, order.append, "early")
    loop.call_at(loop.time(), order.append, "now")
    cancelled = loop.call_later(0.001, order.append, "cancelled")
    cancelled.cancel()
    loop.call_later(0.005, loop.stop)
    loop.run_forever()
    assert order == [0, 2, 3, "now", "early", "late"]
    assert (handles[1].cancelled(), cancelled.cancelled(), late.cancelled()) == (True, True, False)
    assert late.when() <= loop.time()
    assert "append" in repr(loop.call_soon(order.append, 0))
    loop.close()


def test_a_callback_that_is_scheduled_in_a_turn_runs_in_the_next() -> None:
    loop = EventLoop()
    order: list[str] = []

    def first() -> None:
        loop.call_soon(order.append, "third")
        order.append("first")

    loop.call_soon(first)
    loop.call_soon(order.append, "second")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert order == ["first", "second"]
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert order == ["first", "second", "third"]
    loop.close()


def test_a_callback_has_its_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    loop = EventLoop()
    seen: list[str] = []
    variable.set("at the call")
    loop.call_soon(lambda: seen.append(variable.get()))
    variable.set("later")
    context = contextvars.copy_context()
    context.run(variable.set, "given")
    loop.call_later(0, lambda: seen.append(variable.get()), context=context)
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert seen == ["at the call", "given"]
    loop.close()


def test_the_failure_of_a_callback_goes_to_the_exception_handler() -> None:
    loop = EventLoop()
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    handle = loop.call_soon(lambda: [][1])
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert [context["message"].split(" at ")[0] for context in told] == [
        "Exception in callback test_the_failure_of_a_callback_goes_to_the_exception_handler.<locals>.<lambda>()"
    ]
    assert isinstance(told[0]["exception"], IndexError)
    assert told[0]["handle"] is handle


def test_the_report_of_a_failure_shows_the_callback() -> None:
    loop = EventLoop()
    told: list[str] = []
    loop.set_exception_handler(lambda _, context: told.append(repr(context["handle"])))
    loop.call_soon([].pop)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert told == ["<Handle list.pop()>"]


def test_a_nested_run_and_a_closed_loop_are_refused() -> None:
    async def main() -> None:
        other = EventLoop()
        with pytest.raises(RuntimeError, match="another loop is running"):
            other.run_forever()
        with pytest.raises(RuntimeError, match="already running"):
            asyncio.get_running_loop().run_forever()
        inner = main()
        with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
            run(inner)
        inner.close()
        other.close()

    run(main())
    loop = EventLoop()
    loop.close()
    for call in (loop.call_soon, loop.call_soon_threadsafe):
        with pytest.raises(RuntimeError, match="closed"):
            call(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_forever()


def test_other_threads_wake_it() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        results: list[int] = []
        done = asyncio.Event()

        def work() -> None:
            for number in range(100):
                loop.call_soon_threadsafe(results.append, number)
            loop.call_soon_threadsafe(done.set)

        thread = threading.Thread(target=work)
        thread.start()
        await done.wait()
        thread.join()
        assert await loop.run_in_executor(None, threading.get_ident) != threading.get_ident()
        assert await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(twice(2, after=0), loop)) == 4
        return results

    assert run(main()) == list(range(100))


def test_threads_that_schedule_without_end_do_not_make_its_turns_longer_and_longer() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        count = 4
        sent, ran, behind = [0] * count, 0, 0
        ended = threading.Event()

        def run_one() -> None:
            nonlocal ran, behind
            ran += 1
            behind = max(behind, sum(sent) - ran)

        def work(number: int) -> None:
            while not ended.is_set():
                loop.call_soon_threadsafe(run_one)
                sent[number] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            while ran < 50_000 and behind < 20_000:
                await asyncio.sleep(0)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        return behind

    assert run(main()) < 20_000


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio ends the main task from Python 3.11 on")
def test_ctrl_c_cancels_the_main_task_while_it_waits() -> None:
    ended: list[str] = []

    async def main() -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("main")

    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert ended == ["main"]


# The signal may come between a wait and its `await`, as for a coroutine.
@pytest.mark.filterwarnings("ignore:a wait was never awaited:RuntimeWarning")
def test_ctrl_c_ends_code_that_never_waits_for_long() -> None:
    async def main() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        while True:
            await wait(0)

    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(main())
    finally:
        signal.signal(signal.SIGALRM, before)


def test_handlers_of_signals_run_in_turns() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, came.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(came.wait(), 60)
        came.clear()
        # Busy turns see signals as well.
        os.kill(os.getpid(), signal.SIGUSR1)
        while not came.is_set():
            await asyncio.sleep(0)
        assert loop.remove_signal_handler(signal.SIGUSR1)

    run(main())


def test_streams_and_servers_work_over_it() -> None:
    async def main() -> list[bytes]:
        served: list[Any] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(asyncio.current_task())
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
        port = server.sockets[0].getsockname()[1]

        async def ask(text: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text + b"\n")
            answer = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return answer

        answers = await asyncio.gather(*[ask(b"level %d" % number) for number in range(20)])
        big = b"x" * 300_000 + b"\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(big)
        assert await reader.readline() == big.upper()
        writer.close()
        await asyncio.gather(*served)
        server.close()
        await server.wait_closed()
        return answers

    assert run(main()) == [b"LEVEL %d\n" % number for number in range(20)]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="`openssl` makes the certificate")
def test_tls_works_over_it(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(certificate, key)
    theirs = ssl.create_default_context(cafile=str(certificate))

    async def main() -> bytes:
        served: list[Any] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(asyncio.current_task())
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ours)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=theirs, server_hostname="localhost")
        writer.write(b"secret\n")
        answer = await reader.read()
        writer.close()
        await asyncio.gather(*served)
        server.close()
        return answer

    assert run(main()) == b"SECRET\n"


def test_subprocesses_work_over_it() -> None:
    async def main() -> list[Any]:
        async def shout(text: str) -> tuple[bytes, int | None]:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "print(input().upper())",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await process.communicate(text.encode())
            return out, process.returncode

        return list(await asyncio.gather(shout("rain"), shout("snow")))

    assert run(main()) == [(b"RAIN\n", 0), (b"SNOW\n", 0)]


def test_sockets_and_datagrams_work_over_it() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            receiving = asyncio.create_task(loop.sock_recv(ours, 100))
            await asyncio.sleep(0)
            await loop.sock_sendall(theirs, b"depth")
            assert await receiving == b"depth"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(loop.sock_recv(ours, 1), 0.001)

        received = loop.create_future()

        class Receiver(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, _: Any) -> None:
                received.set_result(data)

        transport, _ = await loop.create_datagram_endpoint(Receiver, local_addr=("127.0.0.1", 0))
        sender, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=transport.get_extra_info("sockname")
        )
        sender.sendto(b"ping")
        assert await received == b"ping"
        sender.close()
        transport.close()

    run(main())


def test_tasks_and_generators_are_ended_with_the_program(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append("generator")

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("task")

    kept: list[Any] = []

    async def main() -> None:
        generator = numbers()
        kept.append(generator)
        assert await generator.__anext__() == 1
        kept.append(asyncio.create_task(forever()))
        kept.append(concurrent_proc(forever).call_nonblock())
        await asyncio.sleep(0)

    run(main())
    assert sorted(ended) == ["generator", "task", "task"]
    assert caplog.records == []


def test_debug_mode_tells_of_slow_callbacks_and_other_threads(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert loop.get_debug()
        loop.slow_callback_duration = 0.01
        loop.call_soon(time.sleep, 0.02)
        concurrent_proc(waits).call_detached()
        await asyncio.sleep(0.001)
        errors: list[RuntimeError] = []

        def wrong() -> None:
            try:
                loop.call_soon(print)
            except RuntimeError as error:
                errors.append(error)

        await loop.run_in_executor(None, wrong)
        assert "Non-thread-safe operation" in str(errors[0])

    async def waits() -> None:
        await wait(0)

    with caplog.at_level(logging.WARNING, "asyncio"):
        run(main(), debug=True)
    assert [record.getMessage().split(" took ")[0] for record in caplog.records if "sleep" in record.getMessage()]


def test_nothing_of_a_closed_or_forgotten_loop_stays() -> None:
    class Kept:
        def method(self) -> None:
            pass

    kept = Kept()
    references: list[Any] = [weakref.ref(kept)]
    descriptors = len(os.listdir("/proc/self/fd"))
    for closes in (True, False):
        loop = EventLoop()
        references.append(weakref.ref(loop))
        loop.call_later(3600, kept.method)
        loop.call_soon(kept.method)
        handle = loop.call_later(3600, kept.method)
        handle.cancel()
        loop.call_soon(loop.stop)
        loop.run_forever()
        if closes:
            loop.close()
        else:
            # asyncio warns of loops that were not closed.
            loop._closed = True
            loop._ssock.close()  # type: ignore[attr-defined]
            loop._csock.close()  # type: ignore[attr-defined]
        del loop, handle
    del kept
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_cancelled_timers_are_removed_at_once() -> None:
    loop = EventLoop()
    done: list[Any] = []

    class Kept:
        def method(self) -> None:
            pass

    for _ in range(10):
        kept = Kept()
        done.append(weakref.ref(kept))
        handle = loop.call_later(3600, kept.method)
        handle.cancel()
        del kept, handle
    assert [reference() for reference in done] == [None] * 10
    loop.close()


def test_a_process_that_is_forked_has_a_loop_of_its_own() -> None:
    script = """
import asyncio, os, sys
from thalweg.evaluations import block_on, run, wait

async def main():
    await wait(0.001)
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        os._exit(7 if run(wait(0.001)) is None and block_on(wait(0.001)) is None else 2)
    os._exit(1)

block_on(wait(0))
sys.exit(run(main()))
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (7, b"")


def test_a_forked_process_leaves_the_loop_of_its_parent_alone() -> None:
    script = """
import asyncio, os, signal
from thalweg.evaluations import block_on, wait

block_on(wait(0))
if (child := os.fork()) == 0:
    os._exit(0)
os.waitpid(child, 0)

async def main():
    received = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, received.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(received.wait(), 20)

block_on(main())
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_loop_knows_its_lifetime() -> None:
    async def main() -> float:
        await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EventLoop)
        return loop.lifetime()

    assert 0.01 <= run(main()) < 60


def test_many_loops_in_threads_are_independent() -> None:
    async def main(number: int) -> int:
        total = 0
        for _ in range(200):
            total += await twice(number, after=0)
        return total

    results: dict[int, int] = {}
    threads = [
        threading.Thread(target=lambda number=number: results.update({number: run(main(number))}))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: 400 * number for number in range(4)}


def test_a_descriptor_is_watched_beside_readers_of_transports() -> None:
    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        with pytest.raises(RuntimeError, match="is used by transport"):
            asyncio.get_running_loop().add_reader(ours, print)
        theirs.send(b"sound")
        assert await await_readable(writer.get_extra_info("socket").fileno(), within=60) is True
        data = await reader.read(5)
        writer.close()
        await writer.wait_closed()
        theirs.close()
        return data

    assert run(main()) == b"sound"


def test_what_waits_for_ever_can_be_interrupted_by_a_time_limit() -> None:
    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(never.call_detached()), 0.001)

    run(main())


def test_an_idle_loop_wakes_for_each_callback_of_a_signal_handler_and_of_a_thread() -> None:
    rounds = 500
    loop = EventLoop()
    seen: list[str] = []

    def note(name: str) -> None:
        seen.append(name)
        if len(seen) == 2 * rounds:
            loop.stop()
        else:
            answered.release()

    def send() -> None:
        for number in range(rounds):
            os.kill(os.getpid(), signal.SIGUSR1)
            # The handler yields the interpreter, so that this call arrives while it runs, or just before or after.
            loop.call_soon_threadsafe(note, "thread")
            for _ in range(2):
                answered.acquire()
            time.sleep((number % 7) * 1e-5)

    def handle(*_: object) -> None:
        time.sleep(0)
        loop.call_soon_threadsafe(note, "signal")

    answered = threading.Semaphore(0)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        loop.run_forever()
    finally:
        signal.signal(signal.SIGUSR1, before)
        loop.close()
    assert sorted(seen) == ["signal"] * rounds + ["thread"] * rounds
