//! A running `thalweg serve`, its clients, and the servers that it calls.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::House;

/// A server, which is killed if the test fails.
pub struct Server {
    pub child: Child,
    pub address: String,
    pub log: BufReader<ChildStderr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Serves `service.yml`.
    pub fn start(house: &House, options: &[&str]) -> Self {
        let mut command = house.command(&["serve", "service.yml", "--listen", "127.0.0.1:0"]);
        command.args(options).env("TMPDIR", house.path().join("tmp"));
        Self::of(&mut command)
    }

    /// Starts the command, and waits until it listens.
    pub fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self { child, address: String::new(), log };
        let said = server.wait_for("listening: http");
        let said = said.trim_start_matches('s').trim_start_matches("://");
        // In JSON, a quote follows the address.
        server.address = said.trim().split('"').next().unwrap().to_owned();
        server
    }

    /// Waits for a text in the log, and returns the rest of its line.
    pub fn wait_for(&mut self, text: &str) -> String {
        let mut said = String::new();
        loop {
            let start = said.len();
            assert!(self.log.read_line(&mut said).unwrap() > 0, "it never says `{text}`: {said}");
            if let Some((_, rest)) = said[start..].split_once(text) {
                return rest.to_owned();
            }
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub fn ask(&self, head: &str, body: &[u8]) -> (u16, Value) {
        let mut stream = self.connect();
        stream.write_all(&request(head, body)).unwrap();
        answer(&mut stream)
    }

    pub fn upload(&self, path: &str, files: &[(&str, &[u8])]) -> (u16, Value) {
        self.ask(&format!("POST {path} HTTP/1.1\r\n{FORM}"), &form(files))
    }

    pub fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Stops the server, asserts that it succeeds, and returns its log.
    pub fn end(mut self) -> String {
        self.terminate();
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        assert!(self.child.wait().unwrap().success(), "{log}");
        log
    }
}

pub const FORM: &str = "Content-Type: multipart/form-data; boundary=border\r\n";

pub fn request(head: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("{head}Host: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

pub fn form(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut form = Vec::new();
    for (name, body) in files {
        // The prefix marks a form field.
        let what = match name.strip_prefix("field:") {
            Some(name) => format!("name=\"{name}\""),
            None => format!("name=\"file\"; filename=\"{name}\""),
        };
        form.extend_from_slice(b"--border\r\nContent-Disposition: form-data; ");
        form.extend_from_slice(&[what.as_bytes(), b"\r\n\r\n", body, b"\r\n"].concat());
    }
    [&form[..], b"--border--\r\n"].concat()
}

pub fn answer(stream: &mut impl Read) -> (u16, Value) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

/// Accepts a connection, and reads its request.
pub fn accept(listener: &TcpListener) -> (TcpStream, String) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(&stream);
    let (mut text, mut length) = (String::new(), 0);
    loop {
        let start = text.len();
        reader.read_line(&mut text).unwrap();
        let line = text[start..].to_lowercase();
        if let Some(said) = line.strip_prefix("content-length:") {
            length = said.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    drop(reader);
    (stream, text + &String::from_utf8(body).unwrap())
}

/// Answers the request of a connection.
pub fn reply(mut stream: &TcpStream, status: u16, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
}

/// Answers the requests in turn, each on a connection of its own, and returns the requests.
pub fn answering(answers: Vec<(u16, String)>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = std::thread::spawn(move || {
        let answer = |(status, body): (u16, String)| {
            let (stream, asked) = accept(&listener);
            reply(&stream, status, &body);
            asked
        };
        answers.into_iter().map(answer).collect()
    });
    (address, asked)
}
