//! Secrets are planted wherever one can stand, and everything that the program prints, stores and serves is
//! searched for them. See docs/decisions/076.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;

use crate::common::{self, House};

/// The secrets that no text may contain.
const PLANTED: [&str; 8] = [
    "VARIABLE-7f3a91",
    "FILE-55c0de",
    "USER-88d1e2",
    "PASS-c4fe17",
    "QUERY-90ab3f",
    "HEADER-1b2c3d",
    "BEARER-77aa00",
    // `USER-88d1e2:PASS-c4fe17` in base64.
    "VVNFUi04OGQxZTI6UEFTUy1jNGZlMTc=",
];

/// Fails if a text contains a secret.
pub fn search(what: &str, text: &str) {
    for secret in PLANTED {
        assert!(!text.contains(secret), "{what} has `{secret}`: {text}");
        assert!(!text.to_lowercase().contains(&secret.to_lowercase()), "{what} has `{secret}`: {text}");
    }
}

pub fn search_files(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => search_files(&entry.path()),
            false => search(
                &entry.path().display().to_string(),
                &String::from_utf8_lossy(&fs::read(entry.path()).unwrap()),
            ),
        }
    }
}

/// Runs a command at the noisiest level of the log, and searches what it says.
fn searched(house: &House, arguments: &[&str]) -> String {
    let mut command = house.command(arguments);
    command.env("PLANTED", "VARIABLE-7f3a91").env("THALWEG_LOG", "trace");
    let said = common::said(command.output().unwrap());
    let text = said.out + &said.err;
    search(&arguments.join(" "), &text);
    text
}

/// A server that refuses each request and repeats it, as servers do that are being debugged.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map(Result::unwrap) {
            std::thread::spawn(move || refuse(stream));
        }
    });
    address
}

fn refuse(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let start = head.len();
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
            let line = head[start..].to_lowercase();
            if let Some(number) = line.strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let head = if head.starts_with("HEAD ") { String::new() } else { head };
        let answer = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n{head}", head.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A configuration with a secret in each place where one can stand.
fn configuration(address: &str) -> String {
    format!(
        "
sources:
  in: {{ generate: {{ lines: ['{{\"a\": \"1\"}}'] }} }}
pipelines:
  main:
    from: in
    transforms: [ parse_json, {{ set: {{ b: \"a || '${{PLANTED}}'\" }} }}, {{ keep: [a] }} ]
    to: [ user, bearer ]
sinks:
  user:
    http:
      url: http://USER-88d1e2:PASS-c4fe17@{address}/in?t=QUERY-90ab3f
      headers: {{ X-Api-Key: HEADER-1b2c3d, X-Other: '${{file:secret}}' }}
      encode: json
  bearer:
    http: {{ url: 'http://{address}/${{PLANTED}}', auth: {{ bearer: BEARER-77aa00 }}, encode: json }}
"
    )
}

fn house(configuration: &str) -> House {
    House::with(&[("c.yaml", configuration), ("secret", "FILE-55c0de\n"), ("rows.csv", "a,b\n1,2\n")])
}

#[test]
fn secrets_are_not_in_logs_summaries_dead_letters_or_the_state() {
    let house = house(&configuration(&echo()));
    for arguments in [&[][..], &["--json"], &["--state", "kept"]] {
        searched(&house, &[&["run", "c.yaml"], arguments].concat());
    }
    for arguments in [&["errors", "list", "c.yaml"][..], &["errors", "list", "c.yaml", "--json"]] {
        assert!(searched(&house, arguments).contains("400"));
    }
    assert!(searched(&house, &["errors", "show", "1", "c.yaml"]).contains("answered 400"));
    searched(&house, &["errors", "replay", "c.yaml", "--json"]);
    searched(&house, &["check", "c.yaml", "--plan"]);
    searched(&house, &["check", "c.yaml", "--plan", "--json"]);
    search_files(&house.path().join(".thalweg"));
    search_files(&house.path().join("kept"));
}

#[test]
fn secrets_are_not_served() {
    // Nothing listens at this address.
    let house = house(&configuration("127.0.0.1:1"));
    let mut command =
        house.command(&["run", "c.yaml", "--json", "--listen", "127.0.0.1:0", "--drain-timeout", "0"]);
    command.env("PLANTED", "VARIABLE-7f3a91").env("THALWEG_LOG", "trace");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let (mut said, mut address) = (String::new(), None);
    let asked = |address: &str, path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    while !said.contains("cannot send to") {
        let start = said.len();
        assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
        let event: serde_json::Value = serde_json::from_str(&said[start..]).unwrap();
        if event["event"] == "listening" {
            let message = event["message"].as_str().unwrap();
            address = message.split('/').nth(2).map(str::to_owned);
        }
    }
    let address = address.unwrap_or_else(|| panic!("it does not say where it listens: {said}"));
    let health = asked(&address, "/health");
    assert!(health.contains("503") && health.contains("cannot send to"), "{health}");
    search("/health", &health);
    search("/metrics", &asked(&address, "/metrics"));
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    log.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    search("the log", &said);
}

/// The mistake is in the option that has the secret, or beside it.
#[test]
fn secrets_are_not_in_mistakes() {
    let mistakes = [
        "sinks: { out: { http: { url: 'http://USER-88d1e2:PASS-c4fe17@h:port/in?t=QUERY-90ab3f' } } }",
        "sinks: { out: { http: { url: 'htp://USER-88d1e2:PASS-c4fe17@h/in?t=QUERY-90ab3f' } } }",
        "sinks: { out: { http: { url: 'http://h', auth: { bearer: BEARER-77aa00, tokn: 1 } } } }",
        "sinks: { out: { http: { url: 'http://h', auth: BEARER-77aa00 } } }",
        "sinks: { out: { http: { url: 'http://h', auth: { baerer: BEARER-77aa00 } } } }",
        "sinks: { out: { http: { url: 'http://h', headers: ['X-Api-Key: HEADER-1b2c3d'] } } }",
        "sinks: { out: { kafka: { brokers: 'me:PASS-c4fe17@h:1', topic: t } } }",
        "sinks: { out: { http: { url: 'http://h', headers: { X-Api-Key: HEADER-1b2c3d }, timeout: '${PLANTED}' } } }",
        "sinks: { out: { http: { url: 'http://h', method: '${PLANTED}', headers: { a: '${file:secret}', 'b ': 1 } } } }",
    ];
    let expressions = [
        "set: { x: \"a + '${PLANTED}\" }",
        "set: { x: \"${PLANTED}\" }",
        "filter: \"a = '${PLANTED}' b\"",
        "filter: \"'${PLANTED}'\"",
        "parse_timestamp: { field: a, format: '%Q ${PLANTED}' }",
        "parse_regex: '(${PLANTED}'",
        "template: '{{ ${PLANTED} '",
        "limit: { rate: '${file:secret}' }",
    ];
    let text = |transform: &str, sinks: &str| {
        format!(
            "sources: {{ in: {{ generate: {{ lines: [x] }} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [ {{ {transform} }} ], to: out }} }}\n{sinks}\n"
        )
    };
    let sinks = mistakes.iter().map(|sinks| text("parse_json: {}", sinks));
    let transforms = expressions.iter().map(|expression| text(expression, "sinks: { out: discard }"));
    for configuration in sinks.chain(transforms) {
        let house = house(&configuration);
        for arguments in
            [&["run", "c.yaml"][..], &["run", "c.yaml", "--json"], &["check", "c.yaml", "--json"]]
        {
            let said = searched(&house, arguments);
            assert!(said.contains("c.yaml"), "{configuration}: {said}");
        }
    }
}

#[cfg(feature = "stores")]
#[test]
fn secrets_are_not_told_by_copy() {
    let house = house("");
    let address = echo();
    let web = format!("http://USER-88d1e2:PASS-c4fe17@{address}/rows.csv?t=QUERY-90ab3f");
    let store = format!(
        "s3://bucket/rows.csv?endpoint=http://{address}&region=eu&access_key_id=USER-88d1e2&secret_access_key=PASS-c4fe17"
    );
    for from in [web.as_str(), store.as_str()] {
        searched(&house, &["copy", from, "to.csv"]);
        searched(&house, &["copy", from, "to.csv", "--json"]);
        searched(&house, &["copy", from, "to.csv", "--dry-run"]);
        searched(&house, &["copy", from, "to.csv", "--where", "uper(a"]);
        searched(&house, &["copy", "rows.csv", from, "--state", "kept"]);
        searched(&house, &["sparse", "cat", from]);
        let printed = searched(&house, &["copy", from, "to.csv", "--print-config"]);
        assert!(printed.contains("${"), "{printed}");
    }
    search_files(&house.path().join("kept"));
}
