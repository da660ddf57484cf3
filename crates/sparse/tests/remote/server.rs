//! A server for one file over HTTP/1.1 that injects faults on request.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The fault to inject into one request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// No fault.
    None,
    /// Another status, with a header.
    Status(u16, &'static str),
    /// The connection breaks after this many bytes of the body.
    Cut(usize),
    /// The body is shorter by this many bytes (or by half, if it has fewer), and the head says so.
    Short(usize),
    /// The head promises this many bytes more than the body has.
    Long(usize),
    /// No data is sent after this many bytes.
    Stall(usize),
    /// The whole file is sent instead of the range.
    IgnoreRange,
    /// The whole file is sent instead of the range, and only the end of the connection tells its length.
    NoLength,
    /// The file is sent compressed, which halves it here: in ranges or as a whole. A length may be missing.
    Packed { in_ranges: bool, has_length: bool },
    /// The range that begins this many bytes later is sent.
    Shifted(u64),
    /// The connection is closed without a reply.
    Hang,
    /// The reply is slow, with a pause in the middle.
    Slow(Duration),
}

/// A received request.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    pub method: String,
    pub target: String,
    pub range: Option<(u64, u64)>,
    pub authorization: Option<String>,
}

pub struct State {
    pub bytes: Mutex<Arc<Vec<u8>>>,
    pub etag: Mutex<Option<String>>,
    pub modified: Mutex<Option<String>>,
    /// The faults for the next requests for bytes.
    pub faults: Mutex<VecDeque<Fault>>,
    /// The fault for all later requests for bytes.
    pub always: Mutex<Fault>,
    /// The fault for HEAD requests.
    pub head: Mutex<Fault>,
    pub hits: Mutex<Vec<Hit>>,
    pub delay: Mutex<Duration>,
    /// Requests for bytes wait while this is set.
    pub hold: AtomicBool,
    under_way: AtomicUsize,
    pub most: AtomicUsize,
    stop: AtomicBool,
}

pub struct Server {
    address: String,
    pub state: Arc<State>,
}

impl Server {
    pub fn start(bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State {
            bytes: Mutex::new(Arc::new(bytes)),
            etag: Mutex::new(Some("\"one\"".to_owned())),
            modified: Mutex::new(Some("Wed, 21 Oct 2015 07:28:00 GMT".to_owned())),
            faults: Mutex::default(),
            always: Mutex::new(Fault::None),
            head: Mutex::new(Fault::None),
            hits: Mutex::default(),
            delay: Mutex::default(),
            hold: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                let state = shared.clone();
                std::thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        Self { address, state }
    }

    pub fn url(&self) -> String {
        format!("http://{}/folder/file.bin", self.address)
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn fault(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.faults.lock().unwrap().extend(faults);
    }

    pub fn always(&self, fault: Fault) {
        *self.state.always.lock().unwrap() = fault;
    }

    /// Replaces the content and the tag.
    pub fn change(&self, bytes: Vec<u8>, etag: Option<&str>) {
        *self.state.bytes.lock().unwrap() = Arc::new(bytes);
        *self.state.etag.lock().unwrap() = etag.map(str::to_owned);
    }

    /// Returns the requested ranges, in the order of their positions.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<_> = self.state.hits.lock().unwrap().iter().filter_map(|hit| hit.range).collect();
        ranges.sort_unstable();
        ranges
    }

    /// Returns how many bytes were requested.
    pub fn asked(&self) -> u64 {
        self.ranges().iter().map(|(first, last)| last - first + 1).sum()
    }

    pub fn forget(&self) {
        self.state.hits.lock().unwrap().clear();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(&self.address));
    }
}

fn serve(stream: TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut hit = Hit { method, target, range: None, authorization: None };
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "range" => {
                    let (first, last) = value.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                    hit.range = Some((first.parse().unwrap(), last.parse().unwrap()));
                }
                "authorization" => hit.authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        state.hits.lock().unwrap().push(hit.clone());
        let head = hit.method == "HEAD";
        if !head {
            state.most.fetch_max(state.under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            while state.hold.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(*state.delay.lock().unwrap());
        }
        let fault = match head {
            true => state.head.lock().unwrap().clone(),
            false => {
                let next = state.faults.lock().unwrap().pop_front();
                next.unwrap_or_else(|| state.always.lock().unwrap().clone())
            }
        };
        let goes_on = reply(&mut stream, state, &hit, fault);
        if !head {
            state.under_way.fetch_sub(1, Ordering::SeqCst);
        }
        if !goes_on? {
            return Ok(());
        }
    }
}

/// Returns true if the connection can be used again.
fn reply(stream: &mut TcpStream, state: &State, hit: &Hit, fault: Fault) -> std::io::Result<bool> {
    let bytes = state.bytes.lock().unwrap().clone();
    let bytes = &bytes[..if let Fault::Packed { .. } = fault { bytes.len() / 2 } else { bytes.len() }];
    let total = bytes.len() as u64;
    let mut extra = String::new();
    for (name, value) in [("ETag", &state.etag), ("Last-Modified", &state.modified)] {
        if let Some(value) = &*value.lock().unwrap() {
            extra += &format!("{name}: {value}\r\n");
        }
    }
    let mut range = hit.range.map(|(first, last)| (first, last.min(total.saturating_sub(1))));
    match fault {
        Fault::Status(status, header) => {
            write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 5\r\n{header}\r\n")?;
            if hit.method != "HEAD" {
                write!(stream, "wrong")?;
            }
            return Ok(true);
        }
        Fault::Hang => return Ok(false),
        Fault::IgnoreRange | Fault::NoLength => range = None,
        Fault::Packed { in_ranges, .. } => {
            extra += "Content-Encoding: gzip\r\n";
            range = range.filter(|_| in_ranges);
        }
        Fault::Shifted(by) => range = range.map(|(first, last)| (first + by, last + by)),
        _ => {}
    }
    if range.is_some_and(|(first, _)| first >= total) {
        write!(stream, "HTTP/1.1 416 X\r\nContent-Length: 0\r\nContent-Range: bytes */{total}\r\n\r\n")?;
        return Ok(true);
    }
    let body = match range {
        Some((first, last)) => {
            let last = last.min(total - 1);
            extra += &format!("Content-Range: bytes {first}-{last}/{total}\r\n");
            &bytes[first as usize..=last as usize]
        }
        None => bytes,
    };
    let status = if range.is_some() { 206 } else { 200 };
    let length = match fault {
        Fault::Short(by) if by < body.len() => body.len() - by,
        Fault::Short(_) => body.len() / 2,
        Fault::Long(by) => body.len() + by,
        _ => body.len(),
    };
    if matches!(fault, Fault::NoLength | Fault::Packed { has_length: false, .. }) {
        write!(stream, "HTTP/1.1 {status} X\r\nConnection: close\r\n{extra}\r\n")?;
        if hit.method != "HEAD" {
            stream.write_all(body)?;
        }
        return Ok(false);
    }
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{extra}\r\n")?;
    if hit.method == "HEAD" {
        return Ok(true);
    }
    match fault {
        Fault::Cut(after) => {
            stream.write_all(&body[..after.min(body.len())])?;
            return Ok(false);
        }
        Fault::Short(_) => stream.write_all(&body[..length])?,
        Fault::Long(_) => {
            stream.write_all(body)?;
            return Ok(false);
        }
        Fault::Stall(after) => {
            stream.write_all(&body[..after.min(body.len())])?;
            // Wait until the client closes the connection.
            let _ = stream.read(&mut [0]);
            return Ok(false);
        }
        Fault::Slow(pause) => {
            let (first, second) = body.split_at(body.len() / 2);
            stream.write_all(first)?;
            std::thread::sleep(pause);
            stream.write_all(second)?;
        }
        _ => stream.write_all(body)?,
    }
    Ok(true)
}
