//! A service of Amazon that answers as a test wants, which knows each action: a proxy before an emulator sees
//! only that all requests go to the root.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use serde_json::Value;

/// Returns the status and the body of the answer to an action with this body.
type Play = dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync;

/// Starts a service, which lives as long as the test. Returns its address.
pub(crate) fn fake(play: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> SocketAddr {
    let play: Arc<Play> = Arc::new(play);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let play = play.clone();
            // A client that closes the connection is no error.
            thread::spawn(move || drop(serve(&stream, &*play)));
        }
    });
    address
}

fn serve(mut stream: &TcpStream, play: &Play) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut action, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let Some((name, value)) = line.split_once(": ") else {
                if line.trim().is_empty() {
                    break;
                }
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "x-amz-target" => {
                    action = value.trim().rsplit('.').next().unwrap_or_default().to_owned();
                }
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (status, answer) = play(&action, &serde_json::from_slice(&body).unwrap_or_default());
        let answer = answer.to_string();
        let length = answer.len();
        let head = format!("HTTP/1.1 {status} Any\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &answer).as_bytes())?;
    }
}
