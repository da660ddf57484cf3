//! A runtime of its own for what serves within this process.
//!
//! So a server serves whoever holds it: a test without a runtime, one with a paused clock, one that blocks its only thread.

use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Connections are taken until this is dropped.
pub(crate) struct Background {
    runtime: Option<Runtime>,
    pub address: SocketAddr,
}

impl Background {
    /// Takes connections on a free port of loopback, and does `serve` with each, as a task.
    pub fn serve<F>(name: &str, serve: impl Fn(TcpStream) -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener)?
        };
        runtime.spawn(async move {
            loop {
                // What cannot be taken (no more open files) is waited out by the system's queue.
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
                }
            }
        });
        Ok(Self { runtime: Some(runtime), address })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Without waiting: whoever drops this may be on a thread of a runtime, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
