//! A WebSocket server for tests.

use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderMap;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

/// A server that lets a function talk with each client.
pub(crate) struct Server {
    pub(crate) address: String,
    got: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

impl Server {
    /// Starts the server. The function receives the number of each connection, from 0. The server chooses the
    /// first subprotocol of a client.
    pub(crate) async fn start<F>(
        serve: impl Fn(usize, WebSocketStream<TcpStream>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let got: Arc<Mutex<Vec<(String, HeaderMap)>>> = Arc::default();
        let seen = got.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let seen = seen.clone();
                #[allow(clippy::result_large_err)]
                let note =
                    move |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
                        let headers = request.headers().clone();
                        if let Some(protocols) = headers.get("sec-websocket-protocol") {
                            let first = protocols.to_str().unwrap().split(',').next().unwrap();
                            response.headers_mut().insert("sec-websocket-protocol", first.parse().unwrap());
                        }
                        seen.lock().unwrap().push((request.uri().to_string(), headers));
                        Ok(response)
                    };
                if let Ok(socket) = accept_hdr_async(stream, note).await {
                    tokio::spawn(serve(number, socket));
                }
            }
        });
        Self { address, got }
    }

    /// Returns the target and the headers of each handshake.
    pub(crate) fn got(&self) -> Vec<(String, HeaderMap)> {
        self.got.lock().unwrap().clone()
    }
}
