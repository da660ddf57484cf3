//! Clients and servers around the binary: acknowledged messages are durable, and answers find their way back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{self, House};

/// A run with a listening source.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// The address from its log.
    pub(crate) address: String,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    fn start(house: &House) -> Self {
        Self::begin(house.command(&["run", "pipeline.yaml", "--state", "state"]))
    }

    /// Waits until this command listens.
    pub(crate) fn begin(mut command: Command) -> Self {
        let mut child =
            command.env("THALWEG_LOG", "info").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let start = said.len();
            assert!(log.read_line(&mut said).unwrap() > 0, "it does not listen: {said}");
            if let Some((_, address)) = said[start..].split_once("listens on ") {
                break address.trim().to_owned();
            }
        };
        let log = std::thread::spawn(move || {
            log.read_to_string(&mut said).unwrap();
            said
        });
        Self { child, address, log: Some(log) }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Waits until it ends successfully, and returns its log.
    pub(crate) fn end(mut self) -> String {
        let status = self.child.wait().unwrap();
        let log = self.log.take().unwrap().join().unwrap();
        assert!(status.success(), "{log}");
        log
    }
}

/// Connects from an address of this machine.
fn connected_from(address: [u8; 4], port: u16) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
    });
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// A limit of 64 open files leaves 24 for clients: 18 that are connected, and 6 that wait.
#[test]
fn silent_clients_do_not_use_up_the_descriptors() {
    let house = House::with(&[(
        "pipeline.yaml",
        "sources: { in: { http: { address: '0.0.0.0:0' } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.log } } }\n",
    )]);
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_thalweg");
    command.args(["-c", "ulimit -n 64; exec \"$0\" run pipeline.yaml", program]).current_dir(house.path());
    let server = Server::begin(command);
    let port = server.address.rsplit_once(':').unwrap().1;
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(format!("127.0.0.1:{port}")).unwrap()).collect();
    for number in 0..20 {
        let mut other = connected_from([127, 0, 0, 2], port.parse().unwrap());
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{number:02}");
        other.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        other.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    let folder = format!("/proc/{}/fd", server.child.id());
    let open = std::fs::read_dir(folder).unwrap().count();
    assert!(open < 64, "{open} files are open");
    drop(silent);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&server.child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let log = server.end();
    let warning = "`in`: `max_connections` is 1024, but this process may have only 64 files open: 18 clients can be \
                   connected. Raise the limit";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert!(!log.contains("cannot accept a connection"), "{log}");
}

#[test]
fn acknowledged_messages_survive_kill_9() {
    let house = House::with(&[(
        "pipeline.yaml",
        "sources: { in: { socket: { address: 'tcp://127.0.0.1:0', acknowledge: '+' } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.log } } }\n",
    )]);
    let mut acknowledged = 0;
    for round in 0..3 {
        let mut server = Server::start(&house);
        let mut reader = server.connect();
        let mut writer = reader.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            for number in 0..1_000_000 {
                if writeln!(writer, "round {round} line {number}").is_err() {
                    return;
                }
            }
        });
        let mut answers = [0; 1 << 16];
        let mut answered = 0;
        while answered < 20_000 {
            answered += reader.read(&mut answers).unwrap();
        }
        server.child.kill().unwrap();
        // Acknowledgements in flight still count: the client sees them.
        while let Ok(read) = reader.read(&mut answers)
            && read > 0
        {
            answered += read;
        }
        server.child.wait().unwrap();
        sender.join().unwrap();
        server.log.take().unwrap().join().unwrap();
        let name = if house.path().join("out.log").exists() { "out.log" } else { "out.log.part" };
        let of_round = |line: &String| line.starts_with(&format!("round {round} "));
        let found: Vec<String> = house.lines(name).into_iter().filter(of_round).collect();
        assert!(found.len() >= answered, "{answered} were acknowledged and {} are there", found.len());
        for (number, line) in found.iter().take(answered).enumerate() {
            assert_eq!(*line, format!("round {round} line {number}"));
        }
        // The next run starts with an empty file and without a saved position.
        std::fs::remove_file(house.path().join(name)).unwrap();
        std::fs::remove_dir_all(house.path().join("state")).unwrap();
        acknowledged += answered;
    }
    println!("{acknowledged} messages were acknowledged");
}

/// A run that continues cuts its files back to the last saved state, so a client must be acknowledged only
/// after the save.
#[test]
fn acknowledged_messages_survive_kill_9_and_the_run_that_continues() {
    let house = House::with(&[(
        "pipeline.yaml",
        "sources: { in: { socket: { address: 'tcp://127.0.0.1:0', acknowledge: '+', end_after_idle: 2s } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.log } } }\n",
    )]);
    let mut answered = Vec::new();
    for round in 0..4 {
        let mut server = Server::start(&house);
        let mut stream = server.connect();
        let mut lines = 0;
        for batch in 0..8 {
            (lines..lines + 100).for_each(|line| writeln!(stream, "round {round} line {line}").unwrap());
            lines += 100;
            // The last batch is killed together with the server, at a different moment in each round.
            if batch == 7 {
                std::thread::sleep(Duration::from_millis(round * 7));
                break;
            }
            stream.read_exact(&mut [0; 100]).unwrap();
        }
        server.child.kill().unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        server.child.wait().unwrap();
        server.log.take().unwrap().join().unwrap();
        answered.push(700 + rest.len());
    }
    Server::start(&house).end();
    let found = house.lines("out.log");
    for (round, answered) in answered.into_iter().enumerate() {
        for line in 0..answered {
            let line = format!("round {round} line {line}");
            assert!(found.contains(&line), "`{line}` was acknowledged and is not there");
        }
    }
}

/// Sends a request by hand, and returns the answer.
fn post(mut stream: TcpStream, body: &str) -> String {
    let length = body.len();
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn many_clients_share_a_small_budget() {
    let house = House::with(&[(
        "pipeline.yaml",
        "memory: 1MiB\n\
         sources: { in: { http: { address: '127.0.0.1:0', framing: {}, end_after_idle: 1s } } }\n\
         pipelines: { main: { from: in, transforms: [parse_json: {}], to: out } }\n\
         sinks: { out: { file: { path: out.jsonl, encode: json } } }\n",
    )]);
    let server = Server::start(&house);
    let clients: Vec<_> = (0..32)
        .map(|client| {
            let stream = server.connect();
            std::thread::spawn(move || {
                let text = "x".repeat(100);
                let line = |n| format!("{{\"client\":{client},\"n\":{n},\"text\":\"{text}\"}}\n");
                post(stream, &(0..2000).map(line).collect::<String>())
            })
        })
        .collect();
    for client in clients {
        let answer = client.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    server.end();
    let mut lines = house.lines("out.jsonl");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 32 * 2000);
}

/// Sends a request over a connection that stays open, and reads the answer.
fn ask(stream: &mut TcpStream, body: &str) {
    write!(stream, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..read]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
}

#[cfg(target_os = "linux")]
#[test]
fn small_requests_that_go_to_a_file_start_no_threads() {
    let house = House::with(&[(
        "pipeline.yaml",
        "sources: { in: { http: { address: '127.0.0.1:0', respond: received, end_after_idle: 5s } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.log } } }\n",
    )]);
    let server = Server::start(&house);
    let threads = format!("/proc/{}/task", server.child.id());
    let count = || std::fs::read_dir(&threads).unwrap().count();
    ask(&mut server.connect(), "first");
    let planned = count();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = server.connect();
            std::thread::spawn(move || (0..500).for_each(|_| ask(&mut stream, "a small message")))
        })
        .collect();
    let mut most = planned;
    while !clients.iter().all(|client| client.is_finished()) {
        most = most.max(count());
        std::thread::sleep(Duration::from_millis(2));
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.end();
    assert_eq!(house.lines("out.log").len(), 8001);
    // The runtime keeps a few threads for names and files.
    assert!(most <= planned + 4, "{most} threads, {planned} before");
}

#[test]
fn a_proxy_stands_between_clients_and_a_server() {
    // Answers each line with the same line reversed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut writer = stream.unwrap();
            let reader = BufReader::new(writer.try_clone().unwrap());
            std::thread::spawn(move || {
                for line in reader.lines().map_while(Result::ok) {
                    let answer: String = line.chars().rev().collect();
                    writeln!(writer, "{answer}").unwrap();
                }
            });
        }
    });
    let house = House::with(&[(
        "pipeline.yaml",
        &format!(
            "sources: {{ in: {{ proxy: {{ address: '127.0.0.1:0', end_after_idle: 500ms }} }} }}\n\
             pipelines: {{ main: {{ from: in, to: [server, copy] }} }}\n\
             sinks:\n  server: {{ proxy: {{ address: '{upstream}', timeout: 60s }} }}\n  \
             copy: {{ file: {{ path: copy.log, delimiter: '' }} }}\n"
        ),
    )]);
    let server = Server::start(&house);
    let clients: Vec<_> = (0..5)
        .map(|client| {
            let mut writer = server.connect();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(writer.try_clone().unwrap());
                for number in 0..50 {
                    let text = format!("client {client} asks {number}");
                    writeln!(writer, "{text}").unwrap();
                    let mut answer = String::new();
                    reader.read_line(&mut answer).unwrap();
                    assert_eq!(answer.trim_end().chars().rev().collect::<String>(), text);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.end();
    assert_eq!(house.lines("copy.log").len(), 250);
}

#[test]
fn the_addresses_of_sockets_are_checked_before_the_run() {
    let house = House::with(&[(
        "pipeline.yaml",
        "sources: { in: { socket: { address: 'tpc://localhost:1' } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { http: { url: 'ftp://x' } } }\n",
    )]);
    let said = common::said(house.command(&["check", "pipeline.yaml"]).output().unwrap());
    assert_ne!(said.code, Some(0));
    assert!(
        said.err.contains("`tpc` is not a kind of socket") && said.err.contains("`ftp` is not a scheme"),
        "{}",
        said.err
    );
}
