//! A Redis server, which has each write on its disk before it answers.
//!
//! Its protocol is read here by a few lines of their own: a test of a client must not believe that client.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Tools;
use crate::relay::Relay;
use crate::server::{Recipe, Server};

/// A Redis server.
pub type Redis = Server<RedisServer>;

/// The kind of [`Redis`].
pub struct RedisServer;

/// A value in an answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisValue {
    /// Nothing.
    Null,
    /// A number.
    Number(i64),
    /// A text. Bytes that are no UTF-8 are replaced.
    Text(String),
    /// Several values.
    List(Vec<RedisValue>),
}

impl RedisValue {
    /// Returns the texts of a list, in order. Other values are left out.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::List(values) => values.iter().flat_map(Self::texts).collect(),
            Self::Null | Self::Number(_) => Vec::new(),
        }
    }
}

/// A connection to a server.
pub struct RedisClient {
    stream: BufReader<TcpStream>,
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

impl Redis {
    /// Starts a server; this takes about a tenth of a second.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start() -> io::Result<Self> {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with further options of its command line.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(options: &[&str]) -> io::Result<Self> {
        let server = Tools::find().redis_server()?;
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let command = move |address: SocketAddr, data: &Path| run(&server, address, data, &options);
        let recipe = Recipe { is_ready, ..Recipe::new("redis-server", command) };
        Self::launch(recipe, Relay::start()?, RedisServer, |_, _| Ok(()))
    }

    /// Connects to the server.
    ///
    /// # Errors
    /// If that fails.
    pub fn client(&self) -> io::Result<RedisClient> {
        let stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(RedisClient { stream: BufReader::new(stream) })
    }

    /// Sends a command, and returns the answer.
    ///
    /// # Errors
    /// If the server refuses the command, or cannot be reached.
    pub fn call(&self, words: &[&str]) -> io::Result<RedisValue> {
        self.client()?.call(words)
    }

    /// Sends commands, and waits for their answers.
    ///
    /// # Errors
    /// If the server refuses one, or cannot be reached.
    pub fn call_all<'a>(&self, commands: impl IntoIterator<Item = Vec<&'a str>>) -> io::Result<()> {
        let mut client = self.client()?;
        let mut count = 0;
        let mut bytes = Vec::new();
        for words in commands {
            write_command(&mut bytes, &words)?;
            count += 1;
        }
        client.stream.get_mut().write_all(&bytes)?;
        (0..count).try_for_each(|_| client.answer().map(drop))
    }

    /// Returns the payloads of the entries of a stream, in order: of each, the value of its first field.
    ///
    /// # Errors
    /// If there is no such stream, or the server cannot be reached.
    pub fn payloads(&self, stream: &str) -> io::Result<Vec<String>> {
        let RedisValue::List(entries) = self.call(&["XRANGE", stream, "-", "+"])? else { return Ok(vec![]) };
        // The id, a name, a value.
        Ok(entries.iter().filter_map(|entry| entry.texts().into_iter().nth(2)).collect())
    }

    /// Returns the number of entries that a group of a stream has delivered and that are not acknowledged.
    ///
    /// # Errors
    /// If there is no such group, or the server cannot be reached.
    pub fn pending(&self, stream: &str, group: &str) -> io::Result<i64> {
        match self.call(&["XPENDING", stream, group])? {
            RedisValue::List(values) => match values.first() {
                Some(RedisValue::Number(number)) => Ok(*number),
                _ => Err(strange("XPENDING")),
            },
            _ => Err(strange("XPENDING")),
        }
    }
}

impl RedisClient {
    /// Sends a command, and returns the answer.
    ///
    /// # Errors
    /// If the server refuses the command, or the connection breaks.
    pub fn call(&mut self, words: &[&str]) -> io::Result<RedisValue> {
        let mut bytes = Vec::new();
        write_command(&mut bytes, words)?;
        self.stream.get_mut().write_all(&bytes)?;
        self.answer()
    }

    /// Waits for the next answer, or for the next message of a subscription.
    ///
    /// # Errors
    /// If it is an error, or the connection breaks.
    pub fn answer(&mut self) -> io::Result<RedisValue> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| strange("the end"))?;
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match (kind, number()) {
            ("+", _) => RedisValue::Text(rest.to_owned()),
            ("-", _) => return Err(io::Error::other(rest.to_owned())),
            (":", Ok(number)) => RedisValue::Number(number),
            ("$" | "*", Ok(-1)) => RedisValue::Null,
            ("$", Ok(length)) => {
                let mut text = vec![0; length as usize + 2];
                self.stream.read_exact(&mut text)?;
                text.truncate(length as usize);
                RedisValue::Text(String::from_utf8_lossy(&text).into_owned())
            }
            ("*", Ok(length)) => {
                RedisValue::List((0..length).map(|_| self.answer()).collect::<io::Result<_>>()?)
            }
            _ => return Err(strange(line)),
        })
    }
}

fn strange(what: &str) -> io::Error {
    io::Error::other(format!("the server answered `{what}`"))
}

fn write_command(bytes: &mut Vec<u8>, words: &[&str]) -> io::Result<()> {
    write!(bytes, "*{}\r\n", words.len())?;
    words.iter().try_for_each(|word| write!(bytes, "${}\r\n{word}\r\n", word.len()))
}

fn run(server: &Path, address: SocketAddr, data: &Path, options: &[String]) -> Command {
    let mut command = Command::new(server);
    // Its libraries are beside it, if it was unpacked there: `usr/bin`, and `usr/lib/SYSTEM`.
    let libraries = server.ancestors().nth(2).map(|system| system.join("lib"));
    let folders = libraries.and_then(|folder| folder.read_dir().ok()).into_iter().flatten();
    let folders: Vec<_> =
        folders.flatten().map(|folder| folder.path()).filter(|path| path.is_dir()).collect();
    let is_of_system = server.starts_with("/usr");
    if let Some(path) = std::env::join_paths(folders).ok().filter(|_| !is_of_system) {
        command.env("LD_LIBRARY_PATH", path);
    }
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.arg("--dir").arg(data).args(["--bind", &host, "--port", &port]);
    command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    command.args(options);
    command
}

/// A server that is reading its data from the disk says so.
fn is_ready(address: SocketAddr, output: &str) -> bool {
    let answer = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        let mut answer = [0; 8];
        let length = stream.read(&mut answer)?;
        Ok::<_, io::Error>(answer[..length].to_vec())
    };
    match answer() {
        Ok(answer) if answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH") => true,
        Ok(answer) if answer.starts_with(b"-LOADING") => false,
        // A server with TLS does not answer that.
        Ok(_) => output.contains("Ready to accept connections"),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_killed_comes_back_at_its_address_with_its_entries() {
        let mut redis = Redis::start().unwrap();
        let address = redis.address();
        redis.call_all((0..3).map(|_| vec!["XADD", "s", "*", "name", "value"])).unwrap();
        redis.kill().unwrap();
        assert!(TcpStream::connect(address).is_err());
        redis.restart().unwrap();
        assert_eq!(redis.address(), address);
        assert_eq!(redis.payloads("s").unwrap(), ["value"; 3]);
        redis.hang().unwrap();
        redis.wake().unwrap();
        assert!(redis.call(&["LPUSH", "s", "x"]).unwrap_err().to_string().starts_with("WRONGTYPE"));
        assert_eq!(redis.call(&["GET", "none"]).unwrap(), RedisValue::Null);
    }
}
