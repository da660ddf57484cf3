use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StringViewArray};
use arrow_schema::{DataType, Field};
use thalweg_engine::testing::{batch, context, messages, options, sink_conforms};

use super::*;
use crate::net::testing::within;

struct Server {
    socket: UdpSocket,
    sink: Box<dyn Sink>,
}

async fn start(yaml: &str) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let config: StatsdConfig = options(&format!("{{ address: '{}', {yaml} }}", socket.local_addr().unwrap()));
    assert_eq!(config.check(), []);
    let mut sink = config.build(&context()).unwrap();
    sink.open(None).await.unwrap();
    Server { socket, sink }
}

impl Server {
    async fn write(&mut self, batch: Batch) -> Vec<(u32, String)> {
        let mut rejects = Rejects::default();
        assert_eq!(self.sink.write(&batch, &mut rejects).await.unwrap(), WriteOutcome::Buffered);
        rejects.take()
    }

    /// Flushes; returns the sorted lines of one datagram.
    async fn flushed(&mut self) -> Vec<String> {
        self.sink.flush().await.unwrap();
        self.received().await
    }

    async fn received(&self) -> Vec<String> {
        let mut buffer = [0; 2000];
        let length = within(self.socket.recv(&mut buffer)).await.unwrap();
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

fn with_fields() -> Batch {
    let columns: [(&str, ArrayRef); 2] = [
        ("status", Arc::new(StringViewArray::from(vec!["200", "500", "200", "a b:c"]))),
        ("ms", Arc::new(Float64Array::from(vec![Some(1.5), Some(2.0), Some(-4.0), None]))),
    ];
    let columns = columns.map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column));
    assert_eq!(columns[1].0.data_type(), &DataType::Float64);
    batch(["10", "20", "x", " 30 "]).set_fields(columns).unwrap()
}

#[tokio::test]
async fn it_conforms() {
    // No process listens there, which UDP does not report.
    sink_conforms::<StatsdConfig>("{ address: '127.0.0.1:9' }").await;
}

#[tokio::test]
async fn messages_are_counted_by_name_and_sent_once() {
    let mut server = start("metric: 'status.{status}'").await;
    server.write(with_fields()).await;
    server.write(with_fields()).await;
    let expected = ["thalweg.status.200:4|c", "thalweg.status.500:2|c", "thalweg.status.a_b_c:2|c"];
    assert_eq!(server.flushed().await, expected);
    server.write(batch(["one"])).await;
    assert_eq!(server.flushed().await, ["thalweg.status.:1|c"]);
    let mut server = start("prefix: ''").await;
    server.write(batch(["one", "two"])).await;
    assert_eq!(server.flushed().await, ["test:2|c"]);
}

#[tokio::test]
async fn values_are_summed_up_and_what_is_none_is_rejected() {
    let mut server = start("value: payload, metric: n").await;
    let rejected = server.write(with_fields()).await;
    assert_eq!(rejected, [(2, "has no number in `payload`".to_owned())]);
    assert_eq!(server.flushed().await, ["thalweg.n:60|c"]);
    let mut server = start("value: ms, metric: n").await;
    assert_eq!(server.write(with_fields()).await.len(), 1);
    assert_eq!(server.flushed().await, ["thalweg.n:-0.5|c"]);
    let mut server = start("value: missing").await;
    assert_eq!(server.write(with_fields()).await.len(), 4);
    server.sink.finish().await.unwrap();
}

#[tokio::test]
async fn gauges_and_timings() {
    let mut server = start("kind: gauge, value: ms, metric: n").await;
    server.write(with_fields()).await;
    // Set to 0 first, since a signed value would be read as a change.
    assert_eq!(server.flushed().await, ["thalweg.n:-4|g", "thalweg.n:0|g"]);
    let mut server = start("kind: gauge, gauge: sum, metric: n, every: 1h").await;
    server.write(batch(["a", "b"])).await;
    assert_eq!(server.flushed().await, ["thalweg.n:2|g"]);
    server.write(batch(["c"])).await;
    assert_eq!(server.flushed().await, ["thalweg.n:3|g"]);
    let mut server = start("kind: gauge, gauge: sum, metric: n, every: 0s").await;
    for _ in 0..2 {
        server.write(batch(["a", "b"])).await;
        assert_eq!(server.flushed().await, ["thalweg.n:2|g"]);
    }
    let mut server = start("kind: timing, value: ms, metric: n").await;
    server.write(with_fields()).await;
    assert_eq!(server.flushed().await, ["thalweg.n:-4|ms", "thalweg.n:1.5|ms", "thalweg.n:2|ms"]);
}

#[tokio::test]
async fn datagrams_are_not_larger_than_they_may_be() {
    let mut server = start("metric: '{payload}', max_datagram_bytes: 100").await;
    let names: Vec<String> = (0..50).map(|number| format!("name-{number}")).collect();
    server.write(batch(&names)).await;
    server.sink.flush().await.unwrap();
    let mut found = Vec::new();
    while found.len() < 50 {
        let lines = server.received().await;
        assert!(lines.iter().map(|line| line.len() + 1).sum::<usize>() <= 101);
        assert!(lines.len() > 1);
        found.extend(lines);
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 50);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<StatsdConfig>(yaml).check());
    assert_eq!(mistakes("{}"), [""; 0]);
    assert_eq!(mistakes("{ address: nowhere }"), ["`nowhere` names no port."]);
    let only = "The address of a socket has only a host and a port.";
    assert_eq!(mistakes("{ address: 'u:SEKRET@host:1' }"), [only]);
    assert_eq!(mistakes("{ gauge: sum }"), ["`gauge` is for `kind: gauge`."]);
    assert_eq!(mistakes("{ kind: timing }"), ["A timing needs a value."]);
    assert_eq!(mistakes("{ max_datagram_bytes: 10 }"), ["A datagram has 64 to 65507 bytes."]);
}
