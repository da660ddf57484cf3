"""Starts the servers that `tools/times.py` measures with, each with its data in a folder, on a port of loopback.

The programs are those of `make tools`, as `crates/testbed` starts them for tests, but with the durability that they have in
use: tests let PostgreSQL skip `fsync`, for example. A server is stopped by the id of its process.

    tools/servers.py HOST:PORT       is a server by HTTP that accepts everything (see `Acceptor`)
"""

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
TOOLS = Path(os.environ.get("THALWEG_TOOLS") or TARGET / "tools")
START_SECONDS = 120
STOP_SECONDS = 60
PARTITIONS = 4


class Unusable(Exception):
    """A server that is not installed, or does not start."""


def program(name, place):
    """Returns the path of a program: that of `make tools`, or that of the system."""
    ours = TOOLS / place
    found = str(ours) if ours.is_file() else shutil.which(name)
    if not found:
        raise Unusable(f"`{name}` is neither in `{TOOLS}` nor in PATH: `make tools` installs it")
    return Path(found)


def with_libraries(path):
    """Returns the environment of a program that was unpacked from packages: its libraries are beside it."""
    folder = path.parents[2]
    if folder == Path("/"):
        return {}
    libraries = [*folder.glob("usr/lib/*-linux-gnu"), *folder.glob("lib/*-linux-gnu")]
    return {"LD_LIBRARY_PATH": ":".join(map(str, libraries))} if libraries else {}


@contextlib.contextmanager
def running(name, line, port, log, stop=signal.SIGTERM, cwd=None, environment=None):
    """Runs a server while the context lasts, from the time when it accepts connections."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [str(word) for word in line],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait(lambda: accepts(port), process, f"`{name}`", log)
        yield process
    finally:
        process.send_signal(stop)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait(is_ready, process, name, log):
    end = time.monotonic() + START_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > end:
            said = Path(log).read_text(errors="replace")[-2000:]
            raise Unusable(f"{name} did not start; it printed\n{said}")
        time.sleep(0.02)


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
        return True
    return False


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# --- Brokers and stores.


@contextlib.contextmanager
def rabbitmq(folder, port):
    """Runs RabbitMQ and, before it, the process by which the nodes of Erlang find each other."""
    system = Path("/usr/lib")
    place = "rabbitmq/bin/rabbitmq-server"
    if not (system / place).is_file():
        system = program("rabbitmq-server", f"rabbitmq-server/usr/lib/{place}").parents[2]
    roots = [root for root in (system / "erlang", Path("/usr/lib/erlang")) if list(root.glob("*/bin/erlexec"))]
    if not roots:
        raise Unusable("Erlang is not installed: `make tools` installs it")
    erlang = next(roots[0].glob("*/bin/erlexec")).parent
    # Erlang's own starter expects it where its package installs it.
    starter = folder / "bin/erl"
    starter.parent.mkdir()
    starter.write_text(
        f"#!/bin/sh\nROOTDIR='{roots[0]}' BINDIR='{erlang}' EMU=beam PROGNAME=erl\n"
        f"export ROOTDIR BINDIR EMU PROGNAME\nexec '{erlang}/erlexec' \"$@\"\n"
    )
    starter.chmod(0o755)
    (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\nlog.console.level = error\n")
    (folder / "plugins").write_text("[].")
    names = free_port()
    environment = {
        "PATH": f"{starter.parent}:/usr/bin:/bin",
        "HOME": str(folder),
        # Otherwise its script starts another process, which a signal does not reach.
        "RUNNING_UNDER_SYSTEMD": "true",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "ERL_FLAGS": "-start_epmd false",
        "RABBITMQ_NODENAME": f"times-{port}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    with running("epmd", [erlang / "epmd", "-address", "127.0.0.1", "-port", names], names, folder / "epmd.log"):
        with running("rabbitmq-server", [system / place], port, folder / "log", environment=environment) as process:
            yield process


def mosquitto(folder, port):
    """Runs an MQTT server whose sessions keep all messages: by default it drops those behind the first 1000."""
    server = program("mosquitto", "mosquitto/usr/sbin/mosquitto")
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "persistence true", f"persistence_location {folder}/"]
    lines.append("max_queued_messages 0")
    if os.geteuid() == 0:
        # It would take another user, who cannot write to the folder.
        lines.append("user root")
    (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    line = [server, "-c", folder / "mosquitto.conf"]
    return running("mosquitto", line, port, folder / "log", environment=with_libraries(server))


@contextlib.contextmanager
def nats(folder, port, stream):
    """Runs a NATS server with a stream: its name and its configuration."""
    server = program("nats-server", "bin/nats-server")
    line = [server, "-a", "127.0.0.1", "-p", port, "-js", "-sd", folder / "jetstream"]
    with running("nats-server", line, port, folder / "log") as process:
        name, configuration = stream
        answer = ask_nats(port, f"$JS.API.STREAM.CREATE.{name}", {"name": name, "storage": "file", **configuration})
        if "error" in answer:
            raise Unusable(f"the stream `{name}` was refused: {answer['error']}")
        yield process


def ask_nats(port, subject, request):
    """Sends a request by NATS, and returns the answer. The server's command-line client is no part of the server."""
    body = json.dumps(request).encode()
    with socket.create_connection(("127.0.0.1", int(port)), 10) as connection, connection.makefile("rwb") as stream:
        stream.readline()
        stream.write(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB answer 1\r\n')
        stream.write(f"PUB {subject} answer {len(body)}\r\n".encode() + body + b"\r\n")
        stream.flush()
        while line := stream.readline():
            if line.startswith(b"MSG "):
                return json.loads(stream.read(int(line.split()[-1])))
            if line.startswith(b"-ERR"):
                raise Unusable(f"the NATS server refused a request: {line.decode().strip()}")
    raise Unusable("the NATS server closed the connection")


def redis(folder, port):
    """Runs a Redis server that has each write on its disk before it answers."""
    server = program("redis-server", "redis-server/usr/bin/redis-server")
    line = [server, "--dir", folder, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    return running("redis-server", line, port, folder / "log", environment=with_libraries(server))


@contextlib.contextmanager
def kafka(folder, port):
    """Runs a Kafka broker that is its own controller. Topics are created when they are first used."""
    jars = program("kafka.jars", "kafka/.complete").with_name("*")
    if not shutil.which("java"):
        raise Unusable("`java` is not installed, which runs Kafka")
    controller = free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": folder / "logs",
        "num.partitions": PARTITIONS,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", jars]
    made = [*java, "kafka.tools.StorageTool", "format", "--cluster-id", "AAAAAAAAQACAAAAAAAAAAQ", "--config", properties]
    subprocess.run([str(word) for word in made], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with running("kafka", [*java, "kafka.Kafka", properties], port, folder / "log") as process:
        yield process


@contextlib.contextmanager
def postgres(folder, port, database, statements):
    """Runs a PostgreSQL server with a database, and with the user `thalweg`, who needs no password."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    programs = (found[-1] if found else program("postgres", "postgres/bin/postgres")).parent
    data = folder / "data"
    data.mkdir()
    user = []
    if os.geteuid() == 0:
        # It refuses to run as root, and its user must reach the folder.
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        for parent in folder.parents[:2]:
            parent.chmod(0o711)
        folder.chmod(0o711)
        shutil.chown(data, "postgres")
    made = [*user, programs / "initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--pgdata", data]
    subprocess.run([str(word) for word in made], check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    line = [*user, programs / "postgres", "-D", data, "-h", "127.0.0.1", "-p", port, "-c", "unix_socket_directories="]
    # The usual signal, TERM, would wait for the clients to leave.
    with running("postgres", line, port, folder / "log", stop=signal.SIGINT, cwd="/") as process:
        client = [programs / "psql", "-h", "127.0.0.1", "-p", port, "-U", "postgres", "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1"]

        def execute(name, text):
            asked = [*client, "-d", name, "-c", text]
            subprocess.run([str(word) for word in asked], check=True, cwd="/", stdin=subprocess.DEVNULL)

        ready = [str(word) for word in (programs / "pg_isready", "--quiet", "-h", "127.0.0.1", "-p", port)]
        wait(lambda: subprocess.run(ready, check=False).returncode == 0, process, "`postgres`", folder / "log")
        execute("postgres", "CREATE ROLE thalweg LOGIN")
        execute("postgres", f"CREATE DATABASE {database} OWNER thalweg")
        execute(database, f"SET ROLE thalweg; {statements}")
        yield process


S3_KEYS = {"AWS_ACCESS_KEY_ID": "times", "AWS_SECRET_ACCESS_KEY": "only-for-times"}


@contextlib.contextmanager
def s3(folder, port, store):
    """Runs an S3 server over the folder `store`. Each folder in it is a bucket, each file below an object."""
    server = program("versitygw", "bin/versitygw")
    keys = {"ROOT_ACCESS_KEY": S3_KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": S3_KEYS["AWS_SECRET_ACCESS_KEY"]}
    line = [
        server,
        "--port",
        f"127.0.0.1:{port}",
        "--region",
        "us-east-1",
        "--health",
        "/healthz",
        "--keep-alive",
        "--quiet",
        "posix",
        store,
    ]
    with running("versitygw", line, port, folder / "log", environment=keys) as process:

        def is_healthy():
            with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
                return True
            return False

        wait(is_healthy, process, "`versitygw`", folder / "log")
        yield process


# --- HTTP.


class Acceptor(http.server.BaseHTTPRequestHandler):
    """Accepts everything, for sinks that read the answer: Elasticsearch's has an item for each document, Splunk's a number."""

    protocol_version = "HTTP/1.1"
    # Otherwise an answer in two writes waits for the client's confirmation of the first.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer(b"{}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path.endswith("/_bulk"):
            item = b'{"index":{"status":201}}'
            self.answer(b'{"items":[' + b",".join([item] * (body.count(b"\n") // 2)) + b"]}")
        elif path.endswith("/ack"):
            self.answer(json.dumps({"acks": {str(number): True for number in json.loads(body)["acks"]}}).encode())
        elif path.startswith("/services/collector"):
            self.answer(b'{"text":"Success","code":0,"ackId":0}')
        else:
            self.answer(b"")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def acceptor(folder, port):
    return running("servers.py", [sys.executable, __file__, f"127.0.0.1:{port}"], port, folder / "log")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    host, number = sys.argv[1].split(":")
    Server((host, int(number)), Acceptor).serve_forever()
