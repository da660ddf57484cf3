//! Clients that send records to a listening source, as senders do in the field: they send again what was not
//! acknowledged, and continue after the process was restarted.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::{Value, json};

use crate::feed::Sender;
use crate::program::Running;
use crate::records::Form;

/// The records that are sent together where no answer is expected.
const GROUP: u64 = 100;
/// How long a client waits for bytes before it looks whether the process lives.
const WAIT: Duration = Duration::from_millis(100);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Sends lines over TCP, and waits for a `+` for each.
pub fn acknowledged_lines(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    let Some(mut stream) = connect(running) else { return Ok(()) };
    while !sender.is_done() {
        let numbers = sender.take(sender.group());
        if stream.write_all(&sender.lines(numbers.clone(), Form::Json)).is_err() {
            return Ok(());
        }
        let mut left = numbers.count();
        while left > 0 {
            let mut answers = vec![0; left];
            let Some(count) = read(&mut stream, &mut answers, running) else { return Ok(()) };
            left -= count;
            sender.next += count as u64;
        }
    }
    Ok(())
}

/// Sends lines over TCP that the program does not acknowledge.
pub fn unacknowledged_lines(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    stream_lines(sender, running, Form::Json)
}

/// Sends syslog messages over TCP.
pub fn syslog_lines(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    stream_lines(sender, running, Form::Syslog)
}

fn stream_lines(sender: &mut Sender, running: &mut Running, form: Form) -> io::Result<()> {
    let Some(stream) = connect(running) else { return Ok(()) };
    write_all(sender, stream, form);
    Ok(())
}

/// Sends syslog messages as datagrams.
pub fn syslog_datagrams(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    datagrams(sender, running, Form::Syslog)
}

/// Sends records as datagrams.
pub fn plain_datagrams(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    datagrams(sender, running, Form::Json)
}

fn datagrams(sender: &mut Sender, running: &mut Running, form: Form) -> io::Result<()> {
    let Some(address) = running.address() else { return Ok(()) };
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    while !sender.is_done() && running.is_running() {
        // The receiver's buffer in the system is small.
        for number in sender.take(GROUP / 4) {
            let _ = socket
                .send_to(sender.records.text(number, form).as_bytes(), address.trim_start_matches("udp://"));
            sender.next += 1;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Writes lines to the named pipe `input.pipe`.
pub fn pipe_lines(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    let path = sender.folder.join("input.pipe");
    let pipe = loop {
        if !running.is_running() {
            return Ok(());
        }
        // Without waiting for a reader, which may have been killed.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new().write(true).custom_flags(flags).open(&path) {
            Ok(pipe) => break pipe,
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    fcntl_setfl(&pipe, OFlags::empty())?;
    write_all(sender, pipe, Form::Json);
    Ok(())
}

/// Writes lines to the standard input.
pub fn stdin_lines(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    if let Some(stdin) = running.stdin() {
        write_all(sender, stdin, Form::Json);
    }
    Ok(())
}

/// Appends the rest of the records to the file `in.jsonl`, while it is followed.
pub fn append(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(sender.folder.join("in.jsonl"))?;
    while !sender.is_done() && running.is_running() {
        let numbers = sender.take(GROUP);
        file.write_all(&sender.lines(numbers.clone(), Form::Json))?;
        sender.next = numbers.end;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Writes groups of whole lines, each less than a pipe takes at once, until the other side is gone.
fn write_all(sender: &mut Sender, mut to: impl Write, form: Form) {
    while !sender.is_done() {
        let numbers = sender.take(GROUP / 4);
        // Lines that were written to a process that is gone by now are lost: they come only once.
        let written = to.write_all(&sender.lines(numbers.clone(), form));
        sender.next = numbers.end;
        if written.is_err() {
            return;
        }
    }
}

/// Sends each group of records as the body of an HTTP request, which also has the name of a file.
pub fn posts(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    posted(sender, running, |sender, numbers| {
        let head = format!(
            "POST / HTTP/1.1\r\ncontent-disposition: attachment; filename=\"part-{:09}.jsonl\"\r\n",
            numbers.start
        );
        (head, sender.lines(numbers, Form::Json))
    })
}

/// Exports each group of records as the log records of a request of OpenTelemetry, in JSON.
pub fn exported_logs(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    posted(sender, running, |sender, numbers| {
        let record = |number| json!({ "body": { "stringValue": sender.records.text(number, Form::Json) } });
        let records: Vec<Value> = numbers.map(record).collect();
        let body = json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": records }] }] });
        let head = "POST /v1/logs HTTP/1.1\r\ncontent-type: application/json\r\n".to_owned();
        (head, body.to_string().into_bytes())
    })
}

/// Sends each group of records in an HTTP request of its own. `request` returns its first headers and its
/// body.
fn posted(
    sender: &mut Sender,
    running: &mut Running,
    request: impl Fn(&Sender, Range<u64>) -> (String, Vec<u8>),
) -> io::Result<()> {
    while !sender.is_done() {
        let Some(mut stream) = connect(running) else { return Ok(()) };
        let numbers = sender.take(sender.group());
        let (head, body) = request(sender, numbers.clone());
        let head = format!("{head}host: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut answer = [0; 64];
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        let count = sent.ok().and_then(|()| read(&mut stream, &mut answer, running)).unwrap_or(0);
        // 422: a message of an uploaded file was rejected. That is safe, too.
        let is_safe = |status: &[u8]| answer[..count].starts_with(status);
        if is_safe(b"HTTP/1.1 20") || is_safe(b"HTTP/1.1 422") {
            sender.next = numbers.end;
        } else if !running.is_running() {
            return Ok(());
        } else {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Sends a line, waits for its echo, and only then sends the next.
pub fn echoed_lines(sender: &mut Sender, running: &mut Running) -> io::Result<()> {
    while !sender.is_done() {
        let Some(mut stream) = connect(running) else { return Ok(()) };
        while !sender.is_done() {
            let numbers = sender.take(1);
            let line = sender.lines(numbers.clone(), Form::Json);
            if stream.write_all(&line).is_err() {
                break;
            }
            let mut answer = Vec::new();
            while answer.len() < line.len() {
                let mut buffer = vec![0; line.len() - answer.len()];
                let Some(count) = read(&mut stream, &mut buffer, running) else { break };
                answer.extend_from_slice(&buffer[..count]);
            }
            if answer != line {
                break;
            }
            sender.next = numbers.end;
        }
    }
    Ok(())
}

fn connect(running: &mut Running) -> Option<TcpStream> {
    let address = running.address()?;
    while running.is_running() {
        if let Ok(stream) = TcpStream::connect(address.trim_start_matches("http://"))
            && stream.set_read_timeout(Some(WAIT)).and_then(|()| stream.set_nodelay(true)).is_ok()
        {
            return Some(stream);
        }
        std::thread::sleep(PAUSE);
    }
    None
}

/// Reads what has arrived, waiting for as long as the process lives. None at the end of the connection.
fn read(stream: &mut TcpStream, buffer: &mut [u8], running: &mut Running) -> Option<usize> {
    loop {
        // Before the read: what was sent before the process ended still arrives.
        let lived = running.is_running();
        match stream.read(buffer) {
            Ok(0) => return None,
            Ok(count) => return Some(count),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) && lived => {}
            Err(_) => return None,
        }
    }
}
