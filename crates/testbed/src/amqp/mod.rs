//! An AMQP server, RabbitMQ, with a client for what tests ask of it.
//!
//! RabbitMQ is a program of Erlang, whose nodes find each other by another process, `epmd`. That is started
//! here, so that it ends with the server: the server would leave its own behind. Both listen on loopback, and
//! so does the node.

mod client;

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::Signal;

use crate::Tools;
use crate::program::Program;
use crate::relay::Relay;
use crate::server::{Recipe, Server};
use client::Client;

/// An AMQP server.
pub type Amqp = Server<RabbitMq>;

/// The kind of [`Amqp`].
pub struct RabbitMq {
    /// Ends after the server.
    _epmd: Program,
    secured: u16,
}

/// A message of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AmqpMessage {
    /// The exchange that it was sent to.
    pub exchange: String,
    /// Its routing key.
    pub routing_key: String,
    /// The type of its content.
    pub content_type: Option<String>,
    /// Its id.
    pub message_id: Option<String>,
    /// Its priority.
    pub priority: Option<u8>,
    /// True if the server stores it on its disk.
    pub is_persistent: bool,
    /// Its headers that are texts.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: String,
}

const NAME: &str = "rabbitmq-server";

impl Amqp {
    /// Starts a server; this takes about five seconds.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start() -> io::Result<Self> {
        Self::start_as(String::new())
    }

    /// As [`start`](Self::start), with a second port for TLS and the files of its certificate.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_secured(certificate: &Path, key: &Path) -> io::Result<Self> {
        let (certificate, key) = (certificate.display(), key.display());
        Self::start_as(format!(
            "ssl_options.cacertfile = {certificate}\nssl_options.certfile = {certificate}\n\
             ssl_options.keyfile = {key}\nssl_options.verify = verify_none\n"
        ))
    }

    /// Returns a server that the tests of a program share. It lives as long as one of them holds it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn shared() -> io::Result<Arc<Self>> {
        static SERVER: Mutex<Weak<Amqp>> = Mutex::new(Weak::new());
        let mut known = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = known.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Self::start()?);
        *known = Arc::downgrade(&server);
        Ok(server)
    }

    /// Starts a server with TLS if there are options for it.
    fn start_as(tls: String) -> io::Result<Self> {
        let folder = Tools::find().rabbitmq()?;
        let erlang = Erlang::beside(&folder)?;
        let epmd = Program::start(
            "epmd",
            |address, _| {
                let mut command = Command::new(erlang.programs.join("epmd"));
                command.args(["-address", "127.0.0.1", "-port", &address.port().to_string()]);
                command
            },
            |address, _| TcpStream::connect(address).is_ok(),
        )?;
        let free = || Ok::<_, io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        let (node, secured, names) = (free()?, free()?, epmd.address.port());
        let server = folder.join(Tools::RABBITMQ);
        let recipe = Recipe::new(NAME, move |address, data| command(&server, address, data, node, names));
        let recipe = Recipe { dropped_by: Signal::KILL, attempts: 3, ..recipe };
        let prepare = move |address: SocketAddr, data: &Path| {
            let mut text = format!(
                "listeners.tcp.1 = {address}\nlog.console = true\nlog.console.level = error\n\
                 disk_free_limit.absolute = 1MB\n"
            );
            if !tls.is_empty() {
                let _ = write!(text, "listeners.ssl.1 = 127.0.0.1:{secured}\n{tls}");
            }
            std::fs::write(data.join("rabbitmq.conf"), text)?;
            std::fs::write(data.join("plugins"), "[].")?;
            erlang.write_starter(data)
        };
        Self::launch(recipe, Relay::start()?, RabbitMq { _epmd: epmd, secured }, prepare)
    }

    /// Returns the address of the port with TLS.
    pub fn secured_address(&self) -> SocketAddr {
        (self.address().ip(), self.kind.secured).into()
    }

    /// Declares a durable queue. The value of an argument that is a whole number is sent as one.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn declare(&self, queue: &str, arguments: &[(&str, &str)]) -> io::Result<()> {
        self.with_client(|client| client.declare(queue, arguments))
    }

    /// Binds a queue to an exchange.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn bind(&self, queue: &str, exchange: &str, routing_key: &str) -> io::Result<()> {
        self.with_client(|client| client.bind(queue, exchange, routing_key))
    }

    /// Deletes a queue.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn delete(&self, queue: &str) -> io::Result<()> {
        self.with_client(|client| client.delete(queue))
    }

    /// Publishes lines, each as a persistent message, in order.
    ///
    /// # Errors
    /// If the server does not confirm one.
    pub fn publish(
        &self,
        exchange: &str,
        routing_key: &str,
        lines: impl IntoIterator<Item = String>,
    ) -> io::Result<()> {
        self.publish_messages(lines.into_iter().map(|payload| AmqpMessage {
            exchange: exchange.to_owned(),
            routing_key: routing_key.to_owned(),
            is_persistent: true,
            payload,
            ..AmqpMessage::default()
        }))
    }

    /// Publishes messages, in order.
    ///
    /// # Errors
    /// If the server does not confirm one.
    pub fn publish_messages(&self, messages: impl IntoIterator<Item = AmqpMessage>) -> io::Result<()> {
        self.with_client(|client| client.publish(messages))
    }

    /// Returns the messages that wait in a queue, in order. They stay there.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn messages(&self, queue: &str) -> io::Result<Vec<AmqpMessage>> {
        self.with_client(|client| client.messages(queue, client::Reading::Keep))
    }

    /// Takes the messages that wait in a queue, in order.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn take_messages(&self, queue: &str) -> io::Result<Vec<AmqpMessage>> {
        self.with_client(|client| client.messages(queue, client::Reading::Take))
    }

    fn with_client<T>(&self, ask: impl FnOnce(&mut Client) -> io::Result<T>) -> io::Result<T> {
        let mut client = Client::connect(self.address())?;
        let answer = ask(&mut client)?;
        client.close()?;
        Ok(answer)
    }
}

/// Erlang, which may be unpacked into any folder. Its own starter expects it where its package installs it.
struct Erlang {
    root: PathBuf,
    programs: PathBuf,
}

impl Erlang {
    /// Returns the one in the folder of RabbitMQ, or that of the system.
    fn beside(folder: &Path) -> io::Result<Self> {
        let roots = [folder.join("erlang"), PathBuf::from("/usr/lib/erlang")];
        for root in roots {
            let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
            let mut programs = entries.map(|entry| entry.path().join("bin"));
            if let Some(programs) = programs.find(|programs| programs.join("erlexec").is_file()) {
                return Ok(Self { root, programs });
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "Erlang is not installed: `make tools` installs it"))
    }

    /// Writes a program `erl` that starts it.
    fn write_starter(&self, data: &Path) -> io::Result<()> {
        let starter = data.join("bin/erl");
        std::fs::create_dir_all(data.join("bin"))?;
        let (root, programs) = (self.root.display(), self.programs.display());
        let text = format!(
            "#!/bin/sh\nROOTDIR='{root}' BINDIR='{programs}' EMU=beam PROGNAME=erl\n\
             export ROOTDIR BINDIR EMU PROGNAME\nexec '{programs}/erlexec' \"$@\"\n"
        );
        std::fs::write(&starter, text)?;
        std::fs::set_permissions(&starter, std::fs::Permissions::from_mode(0o755))
    }
}

/// Returns the command of a server, as one process: its script would start another one. The names of nodes
/// are at the port `names`, and the node listens at the port `node`.
fn command(server: &Path, address: SocketAddr, data: &Path, node: u16, names: u16) -> Command {
    let path = format!("{}:/usr/bin:/bin", data.join("bin").display());
    let mut command = Command::new(server);
    command.env_clear().env("PATH", path).env("HOME", data).env("LANG", "C.UTF-8");
    command.env("RUNNING_UNDER_SYSTEMD", "true");
    command.env("ERL_EPMD_ADDRESS", "127.0.0.1").env("ERL_EPMD_PORT", names.to_string());
    command.env("ERL_FLAGS", "-start_epmd false");
    command.env("RABBITMQ_NODENAME", format!("testbed-{}@localhost", address.port()));
    command.env("RABBITMQ_DIST_PORT", node.to_string());
    command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2");
    command.env("RABBITMQ_CONF_ENV_FILE", data.join("none")).env("RABBITMQ_LOGS", "-");
    command.env("RABBITMQ_CONFIG_FILE", data.join("rabbitmq.conf"));
    command.env("RABBITMQ_ENABLED_PLUGINS_FILE", data.join("plugins"));
    command.env("RABBITMQ_MNESIA_BASE", data).env("RABBITMQ_LOG_BASE", data);
    command.env("RABBITMQ_PID_FILE", data.join("pid"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_killed_comes_back_at_its_address_with_its_messages() {
        let mut amqp = Amqp::start().unwrap();
        let address = amqp.address();
        amqp.declare("q", &[("x-max-priority", "5")]).unwrap();
        amqp.bind("q", "amq.topic", "a.#").unwrap();
        let message = AmqpMessage {
            exchange: "amq.topic".to_owned(),
            routing_key: "a.b".to_owned(),
            content_type: Some("text/plain".to_owned()),
            message_id: Some("1".to_owned()),
            priority: Some(2),
            is_persistent: true,
            headers: vec![("unit".to_owned(), "K".to_owned())],
            payload: "x".repeat(300_000),
        };
        amqp.publish_messages([message.clone()]).unwrap();
        amqp.publish("", "q", (0..1000).map(|number| number.to_string())).unwrap();
        amqp.kill().unwrap();
        assert!(TcpStream::connect(address).is_err());
        amqp.restart().unwrap();
        assert_eq!(amqp.address(), address);
        let stored = amqp.messages("q").unwrap();
        assert_eq!((stored.len(), &stored[0]), (1001, &message));
        assert_eq!(stored[1000].payload, "999");
        assert_eq!(amqp.take_messages("q").unwrap(), stored);
        assert!(amqp.messages("q").unwrap().is_empty());
        amqp.hang().unwrap();
        amqp.wake().unwrap();
        amqp.delete("q").unwrap();
        assert!(amqp.messages("q").unwrap_err().to_string().contains("NOT_FOUND"));
    }
}
