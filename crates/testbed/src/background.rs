//! A separate runtime for servers within this process.
//!
//! A server therefore also works for a test without a runtime, with a paused clock, or with a single thread
//! that blocks.

use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Accepts connections until it is dropped.
pub(crate) struct Background {
    runtime: Option<Runtime>,
    pub address: SocketAddr,
}

impl Background {
    /// Accepts connections on a free port of loopback, and runs `serve` for each as a task.
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
                // If a connection cannot be accepted (no more open files), it waits in the system's queue.
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
        // Does not wait: the caller may be on a thread of a runtime, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
