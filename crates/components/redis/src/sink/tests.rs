use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use tokio::task::block_in_place;

use thalweg_engine::testing::{self, batch, messages, open_sink, options, reasons, write_until_durable};
use thalweg_engine::{Component, ErrorKind, SinkConfig};
use thalweg_record::Batch;
use thalweg_testbed::{Outage, Patience, Redis, RedisValue};

use super::RedisSink;

/// A batch of messages with the field `k`.
fn batch_of(rows: &[(&str, &str)]) -> Batch {
    let column = Arc::new(rows.iter().map(|row| Some(row.0)).collect::<StringViewArray>()) as ArrayRef;
    let fields = RecordBatch::try_from_iter([("k", column)]).unwrap();
    batch(rows.iter().map(|row| row.1)).with_fields(fields).unwrap()
}

fn call(redis: &Redis, words: &[&str]) -> RedisValue {
    block_in_place(|| redis.call(words).unwrap())
}

/// Returns a port that was free a moment before.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// Starts a server that answers the commands that follow the greeting with these replies, in turn, over two
/// connections.
fn scripted(replies: &'static [&'static str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut replies = replies.iter().copied();
        for stream in listener.incoming().take(2) {
            let mut stream = BufReader::new(stream.unwrap());
            while let Ok(command) = command(&mut stream) {
                let reply = match command.as_str() {
                    "CLIENT" => "+OK\r\n",
                    "PING" => "+PONG\r\n",
                    _ => replies.next().unwrap(),
                };
                stream.get_mut().write_all(reply.as_bytes()).unwrap();
            }
        }
    });
    address
}

/// Reads a command. Returns its first word.
fn command(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let number = |stream: &mut BufReader<TcpStream>| -> io::Result<usize> {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let number = line.trim_end().get(1..).and_then(|text| text.parse().ok());
        number.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    };
    let mut words = Vec::new();
    for _ in 0..number(stream)? {
        let mut word = vec![0; number(stream)? + 2];
        stream.read_exact(&mut word)?;
        words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
    }
    Ok(words.remove(0))
}

#[test]
fn a_key_that_each_message_replaces_is_remarked() {
    let remarks = |yaml: &str| messages(options::<RedisSink>(&format!("{{ servers: h, {yaml} }}")).remarks());
    let replaced = "Each message replaces the one before: the key is the same for all.";
    for yaml in ["command: set, key: k", "command: hset, key: k, field_values: { a: '{b}' }"] {
        assert_eq!(remarks(yaml), [replaced], "{yaml}");
    }
    for yaml in ["command: set, key: '{k}'", "command: hset, key: k, field: '{f}'", "command: rpush, key: k"]
    {
        assert_eq!(remarks(yaml), [""; 0], "{yaml}");
    }
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("command: set, key: k, field: f", "The command has no `field`."),
        ("command: rpush, key: k, max_age: 1s", "The command has no `max_age`."),
        ("command: sadd, key: k, field_values: { a: b }", "The command has no `field_values`."),
        ("command: hset, key: k", "A hash needs the fields to set."),
        ("command: hset, key: k, field: f, field_values: { a: b }", "A hash needs the fields to set."),
        ("command: zadd, key: k", "A member of a sorted set has a score."),
        ("command: xadd, key: k, value: v, field_values: { a: b }", "`field_values` have the values."),
        ("command: xadd, key: k, id: 1-1", "Each entry of a stream has its own id."),
        ("command: set, key: k, max_age: 0s", "The server would not keep the key."),
        ("command: rpush, key: ''", "The key is empty."),
    ] {
        let yaml = format!("{{ servers: h, {yaml} }}");
        assert_eq!(messages(options::<RedisSink>(&yaml).check()), [expected], "{yaml}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_command_writes_its_kind_of_value_and_what_is_refused_has_the_reason_of_the_server() {
    let redis = Redis::start().unwrap();
    call(&redis, &["SET", "text", "x"]);
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let rows = [("a", "1"), ("text", "2"), ("a", "3")];
    let texts = |words: &[&str]| call(&redis, words).texts();
    for (options, refused, read, expected) in [
        ("command: set, key: 's:{k}'", None, &["MGET", "s:a", "s:text"][..], &["3", "2"][..]),
        ("command: hset, key: '{k}', field: f", Some(wrong), &["HGETALL", "a"], &["f", "3"]),
        ("command: rpush, key: 'r{k}'", None, &["LRANGE", "ra", "0", "-1"], &["1", "3"]),
        ("command: lpush, key: 'l{k}'", None, &["LRANGE", "la", "0", "-1"], &["3", "1"]),
        ("command: sadd, key: '{k}', value: 'v{k}'", Some(wrong), &["GET", "text"], &["x"]),
        (
            "command: zadd, key: z, score: '{payload}', value: '{k}'",
            None,
            &["ZRANGE", "z", "0", "-1"],
            &["text", "a"],
        ),
        ("command: xadd, key: x, field_values: { n: '{k}' }, max_length: 100", None, &["XLEN", "x"], &[]),
    ] {
        let yaml = format!("{{ servers: '{}', {options} }}", redis.address());
        let rejected = testing::write_all::<RedisSink>(&yaml, [batch_of(&rows)]).await.unwrap();
        match refused {
            // Of a hash, `a` is one; for a set it is the wrong kind too.
            Some(reason) if options.contains("sadd") => {
                assert_eq!(reasons(&rejected), [(0, reason), (1, reason), (2, reason)], "{options}");
            }
            Some(reason) => assert_eq!(reasons(&rejected), [(1, reason)], "{options}"),
            None => assert!(rejected.is_empty(), "{options}: {rejected:?}"),
        }
        assert_eq!(texts(read), expected, "{options}");
    }
    assert_eq!(call(&redis, &["XLEN", "x"]), RedisValue::Number(3));
    let yaml = format!("{{ servers: '{}', command: set, key: t, max_age: 1h }}", redis.address());
    testing::write_all::<RedisSink>(&yaml, [batch(["x"])]).await.unwrap();
    assert!(matches!(call(&redis, &["TTL", "t"]), RedisValue::Number(3500..=3600)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_messages_and_says_why() {
    let redis = Redis::start_with(&["--maxmemory", "1mb", "--maxmemory-policy", "noeviction"]).unwrap();
    let yaml = format!("{{ servers: '{}', command: rpush, key: l }}", redis.address());
    let large = "x".repeat(1 << 20);
    let rejected = testing::write_all::<RedisSink>(&yaml, [batch([large.as_str(), "y"])]).await.unwrap();
    let [.., (_, 1, reason)] = &rejected[..] else { panic!("{rejected:?}") };
    assert!(reason.starts_with("OOM "), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_with_an_id_is_in_the_stream_once_however_often_it_is_sent() {
    let redis = Redis::start().unwrap();
    let yaml = format!("{{ servers: '{}', command: xadd, key: s, id: '{{k}}-1' }}", redis.address());
    let rows = [("5", "first"), ("7", "second"), ("6", "too late"), ("x", "no id")];
    for round in 0..2 {
        let rejected = testing::write_all::<RedisSink>(&yaml, [batch_of(&rows)]).await.unwrap();
        let rejected = reasons(&rejected);
        assert_eq!(rejected.iter().map(|(row, _)| *row).collect::<Vec<u32>>(), [2, 3], "{round}");
        assert!(rejected[0].1.contains("equal or smaller than the target stream top item"), "{rejected:?}");
    }
    assert_eq!(block_in_place(|| redis.payloads("s").unwrap()), ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_cannot_be_looked_up_now_is_not_refused() {
    const NOT_LAST: &str =
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item\r\n";
    let address = scripted(&[
        NOT_LAST,
        "-LOADING Redis is loading the dataset in memory\r\n",
        NOT_LAST,
        "*1\r\n*2\r\n$3\r\n5-1\r\n*2\r\n$7\r\npayload\r\n$5\r\nfirst\r\n",
    ]);
    let mut sink =
        open_sink::<RedisSink>(&format!("{{ servers: '{address}', command: xadd, key: s, id: '{{k}}-1' }}"))
            .await;
    let mut failures = 0;
    let rejected = write_until_durable(&mut *sink, batch_of(&[("5", "first")]), |error| {
        assert!(error.full().contains("LOADING"), "{}", error.full());
        failures += 1;
    })
    .await;
    assert_eq!((rejected, failures), (vec![], 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_whose_server_is_a_replica_goes_to_the_next_one() {
    let (replica, primary) = (Redis::start().unwrap(), Redis::start().unwrap());
    // Of a server that is not there.
    call(&replica, &["REPLICAOF", "127.0.0.1", "1"]);
    let yaml =
        format!("{{ servers: ['{}', '{}'], command: rpush, key: l }}", replica.address(), primary.address());
    let mut sink = open_sink::<RedisSink>(&yaml).await;
    let mut failures = 0;
    let rejected = write_until_durable(&mut *sink, batch(["1"]), |error| {
        assert!(error.full().contains("READONLY"), "{}", error.full());
        failures += 1;
    })
    .await;
    assert_eq!((rejected, failures), (vec![], 1));
    assert_eq!(call(&primary, &["LRANGE", "l", "0", "-1"]).texts(), ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_a_server_that_is_away_and_is_stored_in_order() {
    let mut redis = Redis::start().unwrap();
    let yaml = format!(
        "{{ servers: '{}', command: xadd, key: s, timeout: 1s, max_pending: 100 }}",
        redis.relayed_address()
    );
    let mut sink = open_sink::<RedisSink>(&yaml).await;
    let mut expected = Vec::new();
    for round in 0..6 {
        let lines: Vec<String> = (0..300).map(|number| format!("message {round} {number:04}")).collect();
        let batch = batch(lines.iter().map(String::as_str));
        expected.extend(lines);
        let outage = match round {
            1 | 4 => Outage::Killed,
            3 => Outage::Hanging,
            _ => Outage::Cut,
        };
        let mut lost = block_in_place(|| redis.lose(outage).unwrap());
        let rejected =
            write_until_durable(&mut *sink, batch, |_| block_in_place(|| lost.mend().unwrap())).await;
        assert!(rejected.is_empty() && lost.is_over());
    }
    sink.finish().await.unwrap();
    let stored = block_in_place(|| redis.payloads("s").unwrap());
    // The server that hung had commands, whose answers came too late.
    let mut seen = BTreeSet::new();
    let first: Vec<String> = stored.into_iter().filter(|line| seen.insert(line.clone())).collect();
    assert_eq!(first, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_message_is_at_its_subscribers_when_it_is_acknowledged() {
    let redis = Redis::start().unwrap();
    let mut subscriber = redis.client().unwrap();
    block_in_place(|| subscriber.call(&["SUBSCRIBE", "a"]).unwrap());
    let yaml = format!("{{ servers: '{}', command: publish, key: '{{k}}' }}", redis.address());
    let rows = [("a", "first"), ("b", "not heard"), ("a", "last")];
    assert!(testing::write_all::<RedisSink>(&yaml, [batch_of(&rows)]).await.unwrap().is_empty());
    for expected in ["first", "last"] {
        let message = block_in_place(|| subscriber.answer().unwrap());
        assert_eq!(message.texts(), ["message", "a", expected]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_leave_by_errors_when_the_sink_gives_up() {
    let redis = Redis::start().unwrap();
    // A replica of a server that is not there.
    call(&redis, &["REPLICAOF", "127.0.0.1", "1"]);
    let yaml = |more: &str| {
        format!("{{ servers: '{}', command: set, key: '{{k}}', timeout: 1s{more} }}", redis.address())
    };
    let mut sink = open_sink::<RedisSink>(&yaml(", give_up: 200ms")).await;
    let rejected = write_until_durable(&mut *sink, batch_of(&[("a", "1")]), |_| {}).await;
    let [(0, reason)] = &rejected[..] else { panic!("{rejected:?}") };
    assert!(reason.starts_with("could not be sent for 0.2 s (`give_up`): "), "{reason}");
    assert!(reason.contains("READONLY"), "{reason}");
    let mut sink = open_sink::<RedisSink>(&yaml("")).await;
    let mut is_replica = true;
    let rejected = write_until_durable(&mut *sink, batch_of(&[("a", "2")]), |error| {
        assert!(error.full().contains("READONLY"), "{}", error.full());
        if std::mem::take(&mut is_replica) {
            call(&redis, &["REPLICAOF", "NO", "ONE"]);
        }
    })
    .await;
    assert!(rejected.is_empty() && !is_replica);
    assert_eq!(call(&redis, &["GET", "a"]).texts(), ["2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_ends_the_run_and_is_not_shown() {
    let redis = Redis::start_with(&["--requirepass", "secret-one"]).unwrap();
    let write = async |more: &str| {
        let yaml = format!("{{ servers: '{}', command: set, key: k{more} }}", redis.address());
        testing::write_all::<RedisSink>(&yaml, [batch(["x"])]).await
    };
    for auth in ["{ password: secret-one }", "{ user: default, password: secret-one }"] {
        assert!(write(&format!(", database: 3, auth: {auth}")).await.unwrap().is_empty());
    }
    for more in [
        "",
        ", auth: { password: wrong-one }",
        ", auth: { user: other, password: wrong-one }",
        ", database: 99, auth: { password: secret-one }",
    ] {
        let error = write(more).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permanent, "{}", error.full());
        assert!(!error.full().contains("wrong-one"), "{}", error.full());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_cluster_are_written_to_their_nodes() {
    // A port that is the usual distance away may be none.
    let buses = [free_port(), free_port()];
    let start = |bus| Redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", bus]).unwrap();
    let nodes = [start(&buses[0]), start(&buses[1])];
    let port = nodes[1].address().port().to_string();
    call(&nodes[0], &["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]);
    call(&nodes[1], &["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]);
    call(&nodes[1], &["CLUSTER", "SET-CONFIG-EPOCH", "2"]);
    call(&nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &buses[1]]);
    for node in &nodes {
        let patience = Patience::begin();
        loop {
            let info = call(node, &["CLUSTER", "INFO"]).texts().concat();
            if info.contains("cluster_state:ok") {
                break;
            }
            patience.check(|| info);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let rows: Vec<(String, String)> =
        (0..200).map(|number| (format!("k{}", number % 50), number.to_string())).collect();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let yaml = format!("{{ servers: '{}', command: rpush, key: '{{k}}' }}", nodes[0].address());
    let rejected = testing::write_all::<RedisSink>(&yaml, [batch_of(&rows)]).await.unwrap();
    assert!(rejected.is_empty(), "{rejected:?}");
    let sizes: Vec<RedisValue> = nodes.iter().map(|node| call(node, &["DBSIZE"])).collect();
    let [RedisValue::Number(one), RedisValue::Number(other)] = sizes[..] else { panic!("{sizes:?}") };
    assert!(one > 0 && other > 0 && one + other == 50, "{one} and {other} keys");
    let of_foo = batch_of(&[("foo", "1"), ("foo", "2")]);
    assert!(testing::write_all::<RedisSink>(&yaml, [of_foo]).await.unwrap().is_empty());
    // Its slot is 12182.
    assert_eq!(call(&nodes[1], &["LRANGE", "foo", "0", "-1"]).texts(), ["1", "2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_the_server_must_have_the_right_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    let port = free_port();
    let redis = Redis::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "no",
    ])
    .unwrap();
    let write = async |server: &str, tls: &str| {
        let yaml = format!("{{ servers: '{server}', command: rpush, key: l, timeout: 5s{tls} }}");
        testing::write_all::<RedisSink>(&yaml, [batch(["x"])]).await
    };
    let (plain, scheme) = (format!("127.0.0.1:{port}"), format!("rediss://127.0.0.1:{port}"));
    for (server, tls) in [
        (&plain, format!(", tls: {{ ca: '{certificate}' }}")),
        (&scheme, format!(", tls: {{ ca: '{certificate}', server_name: localhost }}")),
        (&scheme, ", tls: { insecure: true }".to_owned()),
    ] {
        write(server, &tls).await.unwrap();
    }
    write(&scheme, "").await.unwrap_err();
    write(&plain, "").await.unwrap_err();
    let other = format!(", tls: {{ ca: '{certificate}', server_name: other.example.com }}");
    write(&scheme, &other).await.unwrap_err();
    assert_eq!(call(&redis, &["LLEN", "l"]), RedisValue::Number(3));
}
