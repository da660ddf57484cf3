//! An MQTT server, mosquitto, with the clients that belong to it.
//!
//! The server stores its sessions when it ends and not before, so a crash would lose messages that it has
//! confirmed: [`Mqtt::kill`] lets it end.
//!
//! A server has messages for subscribers only. [`Mqtt::subscribe`] makes a session that stores what is
//! published from then on, and [`Mqtt::messages`] takes it from there.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Tools;
use crate::relay::Relay;
use crate::server::{Recipe, Server};

/// An MQTT server.
pub type Mqtt = Server<Mosquitto>;

/// The kind of [`Mqtt`].
pub struct Mosquitto {
    tools: Tools,
    /// The number of times that a session was read.
    reads: AtomicU64,
}

/// A message as a subscriber has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MqttMessage {
    /// Its topic.
    pub topic: String,
    /// Its QoS.
    pub qos: u64,
    /// True if it was published before the subscription.
    pub is_retained: bool,
    /// Its properties, as the client shows them. Null without any, and if they were not asked for.
    pub properties: Value,
    /// Its payload.
    pub payload: String,
}

const NAME: &str = "mosquitto";
/// The arguments of a subscriber for the versions of the protocol. A session is the same with both.
const MQTT_3: &[&str] = &["-V", "311"];
const MQTT_5: &[&str] = &["-V", "5", "-x", "3600"];
/// The lines that a client publishes at once. It ends too early with more than it has numbers for.
const AT_ONCE: usize = 30_000;

impl Mqtt {
    /// Starts a server; this takes about a tenth of a second.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start() -> io::Result<Self> {
        Self::start_with("allow_anonymous true\n", None)
    }

    /// As [`start`](Self::start), with further lines of its configuration, and with a user and a password, so
    /// that no client of this value can connect.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(configuration: &str, user: Option<(&str, &str)>) -> io::Result<Self> {
        let tools = Tools::find();
        let (server, passwords) = (tools.mosquitto(NAME)?, tools.mosquitto("mosquitto_passwd")?);
        let recipe = Recipe::new(NAME, move |_, data| {
            let mut command = prepared(&server);
            command.arg("-c").arg(data.join("mosquitto.conf"));
            command
        });
        let prepare = |address: SocketAddr, data: &Path| {
            let mut text = format!("listener {} 127.0.0.1\n", address.port());
            // As root, the server would take another user, who cannot write to the folder.
            let _ = write!(
                text,
                "user root\npersistence true\npersistence_location {}/\nmax_inflight_messages 1000\n\
                 max_queued_messages 0\nqueue_qos0_messages true\n{configuration}",
                data.display()
            );
            if let Some((user, password)) = user {
                let file = data.join("passwords");
                let _ = writeln!(text, "password_file {}", file.display());
                let mut command = prepared(&passwords);
                command.args(["-b", "-c"]).arg(file).args([user, password]).status()?;
            }
            std::fs::write(data.join("mosquitto.conf"), text)
        };
        let recipe = Recipe { killed_by: Signal::TERM, ..recipe };
        let kind = Mosquitto { tools, reads: AtomicU64::new(0) };
        Self::launch(recipe, Relay::start()?, kind, prepare)
    }

    /// Publishes lines with QoS 1, each as a message, in order.
    ///
    /// # Errors
    /// If the server refuses one.
    pub fn publish(&self, topic: &str, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
        let lines: Vec<String> = lines.into_iter().map(|line| line + "\n").collect();
        for lines in lines.chunks(AT_ONCE) {
            let mut client = self.client("mosquitto_pub")?;
            client.args(["-t", topic, "-q", "1", "-l"]).stdin(Stdio::piped());
            let mut client = client.spawn()?;
            if let Some(mut stdin) = client.stdin.take() {
                stdin.write_all(lines.concat().as_bytes())?;
            }
            ended("mosquitto_pub", &mut client)?;
        }
        Ok(())
    }

    /// Publishes one message, as these arguments of `mosquitto_pub` say.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn publish_with(&self, arguments: &[&str]) -> io::Result<()> {
        ended("mosquitto_pub", &mut self.client("mosquitto_pub")?.args(arguments).spawn()?)
    }

    /// Makes a session that stores the messages of these topics from now on.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn subscribe(&self, session: &str, topics: &str) -> io::Result<()> {
        ended("mosquitto_sub", &mut self.subscriber(session, topics, MQTT_5)?.arg("-E").spawn()?)
    }

    /// Takes all messages that the session of [`subscribe`](Self::subscribe) has, in order.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn messages(&self, session: &str, topics: &str) -> io::Result<Vec<MqttMessage>> {
        self.read(session, topics, MQTT_3)
    }

    /// As [`messages`](Self::messages), with their properties. There may be few: with MQTT 5, the client of
    /// mosquitto 2.0.11 ends its connection after 20 messages of QoS 2.
    ///
    /// # Errors
    /// As [`messages`](Self::messages).
    pub fn messages_with_properties(&self, session: &str, topics: &str) -> io::Result<Vec<MqttMessage>> {
        self.read(session, topics, MQTT_5)
    }

    fn read(&self, session: &str, topics: &str, version: &[&str]) -> io::Result<Vec<MqttMessage>> {
        // The session has messages in the order in which the server got them, but the client shows one of QoS
        // 2 only after two round trips. So the last one takes them too.
        let last = format!("last {}", self.kind.reads.fetch_add(1, Ordering::Relaxed));
        self.publish_with(&["-t", &end_of(session), "-q", "2", "-m", &last])?;
        let mut client = self.subscriber(session, topics, version)?.stdout(Stdio::piped()).spawn()?;
        let mut messages = Vec::new();
        let read = client.stdout.take().map_or(Ok(()), |stdout| {
            for line in BufReader::new(stdout).lines() {
                let message = MqttMessage::of(&line?)?;
                if message.topic != end_of(session) {
                    messages.push(message);
                } else if message.payload == last {
                    return Ok(());
                }
            }
            Err(io::Error::other("`mosquitto_sub` ended before it had all messages"))
        });
        // It says goodbye, so that the server knows that it has the last message.
        kill_process(Pid::from_child(&client), Signal::TERM)?;
        client.wait()?;
        read.map(|()| messages)
    }

    fn subscriber(&self, session: &str, topics: &str, version: &[&str]) -> io::Result<Command> {
        let mut client = self.client("mosquitto_sub")?;
        client.args(version).args(["-c", "-i", session, "-q", "2", "-F", "%j"]);
        client.args(["-t", topics, "-t", &end_of(session)]);
        Ok(client)
    }

    fn client(&self, name: &str) -> io::Result<Command> {
        let mut command = prepared(&self.kind.tools.mosquitto(name)?);
        command.args(["-h", "127.0.0.1", "-p", &self.address().port().to_string()]);
        command.stdin(Stdio::null());
        Ok(command)
    }
}

impl MqttMessage {
    /// Returns a message of QoS 1 without properties.
    pub fn new(topic: impl Into<String>, payload: impl Into<String>) -> Self {
        Self { topic: topic.into(), qos: 1, payload: payload.into(), ..Self::default() }
    }

    /// Reads what the client prints.
    fn of(line: &str) -> io::Result<Self> {
        let shown: Value = serde_json::from_str(line)?;
        let text = |name: &str| shown[name].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            topic: text("topic"),
            qos: shown["qos"].as_u64().unwrap_or_default(),
            is_retained: shown["retain"] == 1,
            properties: shown["properties"].clone(),
            payload: text("payload"),
        })
    }
}

/// The topic of the messages that end a read of a session.
fn end_of(session: &str) -> String {
    format!("testbed/end/{session}")
}

fn ended(name: &str, client: &mut Child) -> io::Result<()> {
    let status = client.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("`{name}` failed ({status})"))) }
}

/// Returns a command of the package. Unpacked into a folder, it has its libraries there.
fn prepared(program: &Path) -> Command {
    let mut command = Command::new(program);
    // The program is in `usr/bin` or `usr/sbin` of the folder.
    if let Some(folder) = program.ancestors().nth(3).filter(|folder| folder.parent().is_some()) {
        let libraries = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        let folders = [folder.join("usr").join(&libraries), folder.join(&libraries)];
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("LD_LIBRARY_PATH", path);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_server_that_is_ended_comes_back_at_its_address_with_its_sessions() {
        let mut mqtt = Mqtt::start().unwrap();
        let address = mqtt.address();
        mqtt.subscribe("s", "a/#").unwrap();
        mqtt.publish("a/b", ["first", "second"].map(str::to_owned)).unwrap();
        mqtt.kill().unwrap();
        assert!(TcpStream::connect(address).is_err());
        mqtt.restart().unwrap();
        assert_eq!(mqtt.address(), address);
        mqtt.publish_with(&["-V", "5", "-t", "a", "-m", "third", "-D", "publish", "content-type", "x"])
            .unwrap();
        let messages = mqtt.messages_with_properties("s", "a/#").unwrap();
        assert_eq!(messages[..2], [MqttMessage::new("a/b", "first"), MqttMessage::new("a/b", "second")]);
        assert_eq!((messages[2].qos, &messages[2].properties["content-type"]), (0, &Value::from("x")));
        assert!(mqtt.messages("s", "a/#").unwrap().is_empty());
        mqtt.hang().unwrap();
        mqtt.wake().unwrap();
    }
}
