//! A relay between clients and a server that passes bytes, and cuts its connections on request.
//!
//! [`Proxy`](crate::Proxy) knows HTTP. A protocol of its own needs no more than connections that break.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::background::Background;

/// A relay to one server, on a free port of loopback. Dropping it closes its connections.
pub(crate) struct Relay {
    background: Background,
    upstream: Arc<Mutex<Option<SocketAddr>>>,
    cuts: watch::Sender<()>,
}

impl Relay {
    /// Starts a relay that refuses all clients until it has a server.
    pub fn start() -> io::Result<Self> {
        let upstream: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let (cuts, cut) = watch::channel(());
        let known = upstream.clone();
        let background = Background::serve("relay", move |client| {
            let (upstream, mut cut) = (*known.lock(), cut.clone());
            cut.mark_unchanged();
            async move {
                let Some(upstream) = upstream else { return };
                tokio::select! {
                    // A broken connection is an expected result here.
                    _ = pass(client, upstream) => {}
                    _ = cut.changed() => {}
                }
            }
        })?;
        Ok(Self { background, upstream, cuts })
    }

    /// Returns the address that the relay listens on.
    pub fn address(&self) -> SocketAddr {
        self.background.address
    }

    /// Sets the server of future connections.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        *self.upstream.lock() = Some(upstream);
    }

    /// Cuts all connections. Clients may connect again.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }
}

async fn pass(mut client: TcpStream, upstream: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_cut_ends_the_connections_that_are_open_and_no_later_ones() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start().unwrap();
        relay.set_upstream(server.local_addr().unwrap());
        for _ in 0..2 {
            let mut client = std::net::TcpStream::connect(relay.address()).unwrap();
            let (mut accepted, _) = server.accept().unwrap();
            client.write_all(b"to").unwrap();
            let mut two = [0; 2];
            accepted.read_exact(&mut two).unwrap();
            accepted.write_all(&two).unwrap();
            client.read_exact(&mut two).unwrap();
            assert_eq!(&two, b"to");
            relay.cut();
            assert_eq!(client.read(&mut two).unwrap_or(0), 0);
        }
    }
}
