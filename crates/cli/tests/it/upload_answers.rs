//! The answers of `thalweg serve`, byte by byte, beside those that capyfile 1.2.5 gave to the same requests.
//!
//! `capyfile_cases/requests.jsonl` has a request in each line, with capyfile's answer as `status`, `type`,
//! `location` and `body`. Each character of `request` and `content` is one byte. Where thalweg answers
//! differently on purpose, `ours` has its answer, and `why` the line of `docs/from-capyfile.md` that says so.

use std::io::{Read, Write};

use serde::Deserialize;

use crate::common::House;
use crate::serving::{Server, request};

const SERVICE: &str = include_str!("capyfile_cases/service.yml");
const REQUESTS: &str = include_str!("capyfile_cases/requests.jsonl");
const PAGE: &str = include_str!("../../../../docs/from-capyfile.md");

/// How many of all answers are capyfile's.
const EQUAL: (usize, usize) = (208, 307);

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    /// The first line and the headers.
    request: Vec<String>,
    content: String,
    #[serde(flatten)]
    theirs: Answer,
    ours: Option<Answer>,
    why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Answer {
    status: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    location: Option<String>,
    body: String,
}

fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
}

fn cases() -> Vec<Case> {
    REQUESTS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sends a request as it is, and returns the answer. The random part of names becomes `ID`.
fn ask(server: &Server, case: &Case) -> Answer {
    let lines = case.request.join("\r\n") + "\r\n";
    let text = match lines.contains("Transfer-Encoding") {
        true => {
            let end = "Host: h\r\nConnection: close\r\n\r\n";
            [&bytes(&lines)[..], end.as_bytes(), &bytes(&case.content)].concat()
        }
        false => request(&lines, &bytes(&case.content)),
    };
    let mut stream = server.connect();
    stream.write_all(&text).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{}: {answer}", case.name));
    let header = |name: &str| {
        let mut pairs = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    Answer {
        status: head.split(' ').nth(1).unwrap().to_owned(),
        kind: header("content-type"),
        location: header("location"),
        body: without_ids(body),
    }
}

fn without_ids(body: &str) -> String {
    const BEFORE: &str = "\"filename\":\"";
    let mut parts = body.split(BEFORE);
    let mut found = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (id, rest) = part.split_at(21);
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')), "{id}");
        found += &format!("{BEFORE}ID{rest}");
    }
    found
}

fn served(options: &[&str]) -> (House, Server) {
    let house = House::with(&[("service.yml", SERVICE), ("most.txt", "5")]);
    std::fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/one.txt", b"1");
    house.write("in/twelve.txt", b"xxxxxxxxxxxx");
    let mut command = house.command(&["serve", "service.yml", "--listen", "127.0.0.1:0"]);
    command.args(options).env("TMPDIR", house.path().join("tmp")).env("CAPY_MOST", "5");
    let server = Server::of(&mut command);
    (house, server)
}

#[test]
fn requests_are_answered_as_capyfile_answered_them() {
    let (_house, server) = served(&[]);
    let cases = cases();
    let mut wrong = String::new();
    for case in &cases {
        let answer = ask(&server, case);
        let expected = case.ours.as_ref().unwrap_or(&case.theirs);
        if answer != *expected {
            wrong += &format!("{}\n  expected {expected:?}\n  answered {answer:?}\n", case.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let equal = cases.iter().filter(|case| case.ours.is_none()).count();
    assert!((equal, cases.len()) == EQUAL, "{equal} of {} answers are capyfile's", cases.len());
    server.end();
}

#[test]
fn mistakes_are_answered_as_capyfile_answered_them_if_that_is_asked_for() {
    let (_house, server) = served(&["--compat-status"]);
    let told = |case: &&Case| case.ours.as_ref().is_some_and(|ours| ours.body.contains("INVALID_REQUEST"));
    let internal = |case: &&Case| case.theirs.body.contains("\"INTERNAL\"");
    let cases = cases();
    let mut seen = 0;
    for case in cases.iter().filter(told).filter(internal) {
        assert_eq!(ask(&server, case), case.theirs, "{}", case.name);
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
    server.end();
}

#[test]
fn every_other_answer_has_its_reason_on_the_page() {
    let page = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    for case in cases() {
        assert_eq!(case.ours.is_some(), case.why.is_some(), "{}", case.name);
        if let Some(why) = case.why {
            assert!(page.contains(&why), "{}: the page does not say `{why}`", case.name);
        }
    }
}
