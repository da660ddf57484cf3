use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::block_in_place;

use thalweg_config::ByteSize;
use thalweg_engine::testing::{self, Arrived, RunningSource, messages, options, payloads, rows};
use thalweg_engine::{Component, ErrorKind, SourceConfig};
use thalweg_record::{Batch, Outcome};
use thalweg_testbed::Postgres;

use super::PostgresSource;

#[test]
fn a_row_that_does_not_fit_into_the_memory_is_a_mistake() {
    let large = options::<PostgresSource>("{ server: h, table: t, max_row_bytes: 1GiB }");
    let mistakes = |source: &PostgresSource, mib| messages(source.check_memory(ByteSize::mib(mib)));
    assert_eq!(mistakes(&large, 256), ["A row may have 1GiB, but `memory` is 256MiB."]);
    assert_eq!(mistakes(&large, 1024), [""; 0]);
    assert_eq!(mistakes(&options::<PostgresSource>("{ server: h, table: t }"), 2), [""; 0]);
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ server: h }", "There is nothing to read."),
        ("{ server: h, table: t, query: SELECT 1 }", "The source reads a table or a query."),
        ("{ server: h, table: 's.' }", "`s.` is no table."),
        ("{ server: h, query: ' ; ' }", "The query is empty."),
        ("{ server: h, query: SELECT 1, key: id }", "A query is read as a whole."),
        ("{ server: h, query: 'SELECT 1; SELECT 2' }", "The query has several statements."),
        (
            "{ server: h, query: DELETE FROM t RETURNING * }",
            "A query begins with `SELECT`, `WITH`, `VALUES` or `TABLE`: the source reads its rows.",
        ),
        ("{ server: h, table: t, read_timeout: 0s }", "No server can answer in no time."),
        ("{ server: h, table: t, max_row_bytes: 0B }", "No row has 0 bytes."),
        (
            "{ server: h, table: t, cursor: c, partitions: 2 }",
            "Rows in the order of `cursor` have no ranges.",
        ),
        ("{ server: h, table: t, delay: 1s }", "`delay` is for the times of `cursor`."),
        ("{ server: h, table: t, every: 0s }", "The source cannot look without a pause."),
        ("{ server: 'postgres://u:secret@h/d', table: t }", "A server is a host, or a host with a port."),
    ] {
        assert_eq!(messages(options::<PostgresSource>(yaml).check()), [expected], "{yaml}");
    }
}

fn yaml(server: &Postgres, more: &str) -> String {
    format!("{{ server: '{}', timeout: 5s, {more} }}", server.relayed_address())
}

/// Returns the rows of a source as JSON.
async fn read(server: &Postgres, more: &str) -> Vec<Value> {
    let sent = testing::read_all::<PostgresSource>(&yaml(server, more), 1 << 16).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    sent.main.iter().flat_map(|batch| rows(batch.fields())).collect()
}

/// Returns the error that a source ends with.
async fn error(server: &Postgres, more: &str) -> String {
    let sent = testing::read_all::<PostgresSource>(&yaml(server, more), 1 << 16).await;
    let error = sent.result.expect("an error");
    assert_eq!(error.kind(), ErrorKind::Permanent, "{}", error.full());
    error.full()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_fields_of_their_types_and_what_has_no_counterpart_is_rejected() {
    let server = block_in_place(|| Postgres::start().unwrap());
    block_in_place(|| {
        server.run(
            "CREATE TYPE mood AS ENUM ('sad', 'glad');
             CREATE TABLE all_types (id int PRIMARY KEY, b bool, s smallint, f real, d double precision,
                 n numeric(6, 2), free numeric, t text, c char(3), bin bytea, day date, at_time time, ts timestamp,
                 tz timestamptz, u uuid, j json, jb jsonb, list int[], m mood, ip inet);
             INSERT INTO all_types VALUES (1, true, -5, 1.5, 2.5, 12.30, 1e-20, 'größer', 'ab', '\\x00ff',
                 '2026-11-27', '12:30', '2026-11-27 12:30:00.000001', '2026-11-27 12:30:00+01',
                 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": 1}', '[1, 2]', '{1,NULL,3}', 'glad', '10.0.0.1');
             INSERT INTO all_types (id) VALUES (2);
             INSERT INTO all_types (id, ts) VALUES (3, 'infinity')",
        )
        .unwrap();
    });
    let sent =
        testing::read_all::<PostgresSource>(&yaml(&server, "table: all_types, payload: t"), 1 << 16).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    let [batch] = &sent.main[..] else { panic!("{:?}", sent.main) };
    assert_eq!(payloads(batch), ["größer", ""]);
    assert_eq!(batch.positions().unwrap().values(), &[1, 2]);
    assert_eq!(batch.meta().path.as_deref(), Some("all_types"));
    let mut shown = rows(batch.fields());
    let first = shown[0].as_object_mut().unwrap();
    // Types that the rows of tests do not show.
    for name in ["f", "n", "bin", "day", "at_time"] {
        assert!(first.remove(name).unwrap().as_str().unwrap().starts_with('<'), "{name}");
    }
    assert_eq!(
        shown[0],
        json!({
            "id": 1, "b": true, "s": -5, "d": 2.5, "free": "0.00000000000000000001", "t": "größer", "c": "ab ",
            "ts": 1_795_782_600_000_001_i64, "tz": 1_795_779_000_000_000_i64, "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "j": "{\"a\": 1}", "jb": "[1, 2]",
            "list": "[1,null,3]", "m": "glad", "ip": "10.0.0.1/32",
        })
    );
    assert_eq!(shown[1], json!({ "id": 2 }));
    let [rejected] = &sent.errors[..] else { panic!("{:?}", sent.errors) };
    let reason = &rows(rejected.fields())[0]["error_reason"];
    assert_eq!(reason, "`ts` is infinite, or out of range");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_read_as_a_whole_and_what_the_server_lacks_is_named() {
    let server = block_in_place(|| Postgres::start().unwrap());
    block_in_place(|| server.run("CREATE TABLE pairs (a int, b int, PRIMARY KEY (a, b))").unwrap());
    assert_eq!(
        read(
            &server,
            "query: \"SELECT n AS x, n * 2 AS \\\"Y\\\" FROM generate_series(1, 2) AS n -- a comment\\n;\""
        )
        .await,
        [json!({ "x": 1, "Y": 2 }), json!({ "x": 2, "Y": 4 })]
    );
    assert_eq!(read(&server, "query: SELECT 1 AS a WHERE false").await, [Value::Null; 0]);
    let twice = error(&server, "query: 'SELECT 1 AS a, 2 AS a'").await;
    assert_eq!(twice, "`query` has two columns `a`: give one another name with `AS`");
    let absent = error(&server, "table: none_such").await;
    assert!(absent.starts_with("cannot read `none_such`: relation \"none_such\" does not exist"), "{absent}");
    let keyless = error(&server, "table: pairs, partitions: 2").await;
    assert_eq!(keyless, "`pairs` has no primary key of one column: name a unique column in `key`");
    let column = error(&server, "table: pairs, columns: c").await;
    assert!(column.contains("column \"c\" does not exist"), "{column}");
    // The first row, with which the server answers, may take longer than the answer to another statement.
    let slow = format!(
        "{{ server: '{}', timeout: 3s, query: SELECT pg_sleep(4)::text AS t }}",
        server.relayed_address()
    );
    let sent = testing::read_all::<PostgresSource>(&slow, 1 << 16).await;
    assert!(sent.result.is_none() && sent.main.len() == 1, "{:?}", sent.result);
    let large = error(&server, "query: \"SELECT repeat('x', 100000) AS t\", max_row_bytes: 10KiB").await;
    assert!(large.contains("more than `max_row_bytes` (10240)"), "{large}");
}

/// Waits for the next batch, settles it, and returns the numbers of its rows.
async fn numbers(source: &RunningSource) -> Option<Vec<i64>> {
    let batch = source.take_batch(Duration::from_secs(60)).await?;
    let numbers = ids(&batch);
    batch.settle(Outcome::Delivered);
    Some(numbers)
}

fn ids(batch: &Batch) -> Vec<i64> {
    rows(batch.fields()).iter().filter_map(|row| row["id"].as_i64()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_are_read_at_the_same_time_and_a_later_run_continues_in_each() {
    let server = block_in_place(|| Postgres::start().unwrap());
    block_in_place(|| {
        server
            .run("CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 2000) AS n")
            .unwrap();
    });
    let yaml = yaml(&server, "table: t, partitions: 3");
    let source = testing::start::<PostgresSource>(&yaml, 1 << 12, BTreeMap::new());
    let mut seen = Vec::new();
    while seen.len() < 500 {
        seen.extend(numbers(&source).await.unwrap());
    }
    let positions = source.positions.take_changes();
    source.stop.request();
    while let Some((_, Arrived::Messages(batch))) = source.main.take().await {
        // Not settled in the former run's checkpoint: read again.
        batch.settle(Outcome::Delivered);
    }
    source.task.await.unwrap().unwrap();
    let saved =
        positions.into_iter().filter_map(|(name, offset)| Some((name.to_string(), offset?))).collect();
    let rest = testing::start::<PostgresSource>(&yaml, 1 << 12, saved).finish().await;
    assert!(rest.result.is_none(), "{:?}", rest.result);
    seen.extend(rest.main.iter().flat_map(ids));
    seen.sort_unstable();
    assert!(seen.into_iter().eq(1..=2000));
    let paths = rest.main.iter().filter_map(|batch| batch.meta().path.clone());
    assert!(paths.into_iter().all(|path| ["t:0", "t:1", "t:2"].contains(&&*path)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_range_is_continued_as_one_and_another_order_begins_at_its_beginning() {
    let server = block_in_place(|| Postgres::start().unwrap());
    let run = |statements: &str| block_in_place(|| server.run(statements).unwrap());
    run("CREATE TABLE t (id bigint PRIMARY KEY, code bigint UNIQUE, at timestamptz DEFAULT now());
         INSERT INTO t SELECT n, 10 - n FROM generate_series(1, 9) AS n;
         INSERT INTO t VALUES (10, 0, 'infinity')");
    let read = async |more: &str, mut saved: BTreeMap<String, Value>| {
        let options = yaml(&server, &format!("table: t, columns: [id], {more}"));
        let source = testing::start::<PostgresSource>(&options, 1 << 12, saved.clone());
        let positions = source.positions.clone();
        let sent = source.finish().await;
        assert!(sent.result.is_none(), "{:?}", sent.result);
        let changes = positions.take_changes().into_iter();
        saved.extend(changes.filter_map(|(name, offset)| Some((name.to_string(), offset?))));
        (sent.main.iter().flat_map(ids).collect::<Vec<i64>>(), saved)
    };
    let (all, saved) = read("partitions: 1", BTreeMap::new()).await;
    assert!(all.into_iter().eq(1..=10));
    let (none, saved) = read("partitions: 3", saved).await;
    assert_eq!(none, [0; 0]);
    let (by_code, saved) = read("key: code", saved).await;
    assert!(by_code.into_iter().eq((1..=10).rev()));
    // Behind the row at infinity, no other would come.
    let (by_time, saved) = read("cursor: at", saved).await;
    assert!(by_time.into_iter().eq(1..=9));
    run("INSERT INTO t VALUES (11, 11)");
    assert_eq!(read("cursor: at", saved).await.0, [11]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_growing_column_is_followed_over_broken_connections_and_equal_values() {
    let mut server = block_in_place(|| Postgres::start().unwrap());
    // All rows of an insert have the same time.
    let insert = |server: &Postgres, from: usize| {
        let statement =
            format!("INSERT INTO t SELECT n, now() FROM generate_series({from}, {}) AS n", from + 299);
        block_in_place(|| server.run(&statement).unwrap());
    };
    block_in_place(|| server.run("CREATE TABLE t (id int PRIMARY KEY, at timestamptz)").unwrap());
    insert(&server, 1);
    let yaml = yaml(&server, "table: t, cursor: at, every: 20ms");
    let source = testing::start_retried::<PostgresSource>(&yaml, 1 << 12);
    let mut seen = Vec::new();
    for round in 1..=3 {
        while seen.len() < 300 * round {
            seen.extend(numbers(&source).await.unwrap());
        }
        match round {
            1 => server.cut(),
            2 => block_in_place(|| {
                server.kill().unwrap();
                server.restart().unwrap();
            }),
            _ => break,
        }
        insert(&server, 300 * round + 1);
    }
    assert!(seen.into_iter().eq(1..=900));
    source.stop.request();
    source.task.await.unwrap().unwrap();
}
