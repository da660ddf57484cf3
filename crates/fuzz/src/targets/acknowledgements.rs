//! Answers of a server, which the sink `socket` reads: a message is delivered only after its own answer.

use std::cell::RefCell;

use thalweg_engine::testing::{batch_with, context, options};
use thalweg_engine::{Rejects, SinkConfig};
use thalweg_net::sinks::socket::SocketConfig;
use thalweg_record::{Ack, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::Target;
use crate::input::{Input, pieces};
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "acknowledgements",
    components: &["socket"],
    longest: 1 << 10,
    words: &["OK\n", "O", "K\n", "OK\nOK\nOK\n"],
    run,
};

const ANSWER: &[u8] = b"OK\n";
const MESSAGES: [&[u8]; 3] = [b"one", b"two", b"three"];

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    /// A listener for all inputs: each would use up a port.
    static LISTENER: RefCell<Option<TcpListener>> = const { RefCell::new(None) };
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let seed = input.choice(256);
    let is_answered = RUNTIME.with(|runtime| {
        let listener = LISTENER
            .take()
            .unwrap_or_else(|| runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port"));
        let answered = bounded((4 << 20) + 40 * bytes.len(), || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(&listener, input.0, seed) => false,
                    is_sent = is_sent(&listener) => is_sent,
                }
            })
        });
        LISTENER.set(Some(listener));
        answered
    });
    assert_eq!(is_answered, input.0.starts_with(&ANSWER.repeat(MESSAGES.len())));
}

/// Answers one client with these bytes, and returns when it disconnects. A sink keeps its connection if all
/// messages are delivered. It connects again if some are, after a pause that would leave few inputs.
async fn serve(listener: &TcpListener, answers: &[u8], seed: usize) {
    let (mut client, _) = listener.accept().await.expect("a client");
    for piece in pieces(answers, seed) {
        // A client that has seen a wrong answer disconnects.
        let _ = client.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    let _ = client.shutdown().await;
    let _ = client.read_to_end(&mut Vec::new()).await;
}

/// Sends the messages. Returns true if they count as delivered.
async fn is_sent(listener: &TcpListener) -> bool {
    let at = listener.local_addr().expect("an address");
    let yaml = format!("{{ address: '{at}', acknowledge: \"OK\\n\", acknowledge_timeout: 10s }}");
    let mut sink = options::<SocketConfig>(&yaml).build(&context()).expect("a sink");
    sink.open(None).await.expect("nothing is to be opened");
    let batch = batch_with(MESSAGES, Ack::new("test".into(), |_| {}));
    let written = sink.write(&batch, &mut Rejects::default()).await;
    batch.settle(Outcome::Delivered);
    written.is_ok()
}
