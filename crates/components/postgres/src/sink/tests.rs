use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray, UInt64Array,
};
use tokio::task::block_in_place;

use thalweg_engine::testing::{self, batch, messages, options};
use thalweg_engine::{Component, ErrorKind, Journal, Sink, SinkConfig, Store};
use thalweg_record::{Ack, Batch, Meta};
use thalweg_testbed::Postgres;

use super::PostgresSink;

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ server: h, table: 'a.' }", "`a.` is no table."),
        ("{ server: h, table: t, on_conflict: nothing }", "Only `insert` can leave a row as it is."),
        ("{ server: h, table: '\"t\"' }", "`\"t\"` has quotation marks."),
        (
            "{ server: h, table: t, exactly_once: true, positions_table: t }",
            "Rows and positions need a table each.",
        ),
        ("{ server: h, table: t, key: id }", "Only `upsert` has a key."),
        (
            "{ server: h, table: t, exactly_once: true, concurrency: 2 }",
            "`exactly_once` needs the messages in order.",
        ),
        ("{ server: 'postgres://u:secret@h/d', table: t }", "A server is a host, or a host with a port."),
    ] {
        assert_eq!(messages(options::<PostgresSink>(yaml).check()), [expected], "{yaml}");
    }
}

/// Returns a batch with these fields, whose payloads are `-`.
fn batch_of(columns: Vec<(&str, ArrayRef)>) -> Batch {
    let fields = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    );
    let fields = fields.unwrap();
    batch((0..fields.num_rows()).map(|_| "-")).with_fields(fields).unwrap()
}

fn ints(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(values.iter().copied().collect::<StringViewArray>())
}

fn yaml(server: &Postgres, more: &str) -> String {
    format!("{{ server: '{}', timeout: 5s, {more} }}", server.relayed_address())
}

/// Writes batches. Returns the refused rows with their reasons.
async fn write(server: &Postgres, more: &str, batches: Vec<Batch>) -> Vec<(u32, String)> {
    let rejected = testing::write_all::<PostgresSink>(&yaml(server, more), batches).await.unwrap();
    rejected.into_iter().map(|(_, row, reason)| (row, reason)).collect()
}

fn run(server: &Postgres, statements: &str) {
    block_in_place(|| server.run(statements).unwrap());
}

fn stored(server: &Postgres, query: &str) -> Vec<String> {
    block_in_place(|| server.rows(query).unwrap()).iter().map(|row| row.join(" ")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_are_converted_and_rows_that_are_refused_leave_the_others() {
    let server = block_in_place(|| Postgres::start().unwrap());
    run(
        &server,
        "CREATE TABLE t (id int PRIMARY KEY, name varchar(5), price numeric(8, 2), at timestamptz, extra jsonb,
             made int GENERATED ALWAYS AS (id * 2) STORED, own text DEFAULT 'default', CHECK (id <> 40))",
    );
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![0; 100]).with_timezone("UTC"));
    let mut names = vec![Some("ok"); 100];
    names[17] = Some("much too long");
    names[99] = None;
    let prices: ArrayRef = Arc::new(Float64Array::from_iter_values((0..100).map(|n| f64::from(n) + 0.5)));
    let good = batch_of(vec![
        ("id", ints((0..100).map(|n| if n == 50 { 5_000_000_000 } else { n }))),
        ("name", texts(&names)),
        ("price", prices),
        ("at", times),
        ("extra", texts(&[Some("a text"); 100])),
    ]);
    let refused = write(&server, "table: t", vec![good]).await;
    let reasons: Vec<(u32, &str)> = refused.iter().map(|(row, reason)| (*row, reason.as_str())).collect();
    let [long, check, large] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(*long, (17, "value too long for type character varying(5) (22001)"));
    assert!(check.0 == 40 && check.1.contains("violates check constraint \"t_id_check\""), "{check:?}");
    let out_of_range =
        "`id` is a whole number of 64 bits, and this one is out of the range of the column's type integer";
    assert_eq!(*large, (50, out_of_range));
    assert_eq!(
        stored(
            &server,
            "SELECT count(*), count(name), sum(made), min(extra::text), min(own), min(at) = 'epoch' FROM t"
        ),
        [format!("97 96 {} \"a text\" default t", 2 * (99 * 100 / 2 - 17 - 40 - 50))]
    );
    assert_eq!(stored(&server, "SELECT price FROM t WHERE id = 7"), ["7.50"]);
    // A field without a column, a type that does not fit, a column that the server computes.
    let refused = write(
        &server,
        "table: t",
        vec![
            batch_of(vec![("id", ints([101])), ("nmae", texts(&[Some("x")]))]),
            batch_of(vec![("id", ints([102])), ("at", ints([1]))]),
            batch_of(vec![("id", ints([103])), ("made", ints([1]))]),
            batch_of(vec![("other", texts(&[None]))]),
        ],
    )
    .await;
    let reasons: Vec<&str> = refused.iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "`t` has no column `nmae`",
            "`at` is a whole number of 64 bits, which does not fit the column's type timestamp with time zone",
            "the server computes the column `made` of `t`",
            "no field is a column of `t`",
        ]
    );
    let skipping = batch_of(vec![("id", ints([104])), ("nmae", texts(&[Some("x")]))]);
    assert!(write(&server, "table: t, skip_unknown_fields: true", vec![skipping]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_inserted_replaced_and_left_as_they_are() {
    let server = block_in_place(|| Postgres::start().unwrap());
    run(&server, "CREATE TABLE t (id int PRIMARY KEY, ip inet, line text)");
    let two = || batch_of(vec![("id", ints([1, 2])), ("ip", texts(&[Some("10.0.0.1"), Some("no address")]))]);
    // A type that is not known here is converted by the server.
    let refused = write(&server, "table: t", vec![two()]).await;
    assert_eq!(refused, [(1, "invalid input syntax for type inet: \"no address\" (22P02)".to_owned())]);
    let refused = write(&server, "table: t, write_mode: insert", vec![two()]).await;
    assert!(refused[0].1.starts_with("duplicate key value violates unique constraint"), "{refused:?}");
    let ids =
        |ids: [i64; 2], ip| batch_of(vec![("id", ints(ids)), ("ip", texts(&[Some("10.0.0.8"), Some(ip)]))]);
    let nothing = "table: t, write_mode: insert, on_conflict: nothing";
    assert!(write(&server, nothing, vec![ids([1, 2], "10.0.0.9")]).await.is_empty());
    let query = "SELECT id, host(ip) FROM t ORDER BY id";
    assert_eq!(stored(&server, query), ["1 10.0.0.1", "2 10.0.0.9"]);
    // Of two messages with a key, the last counts.
    assert!(write(&server, "table: t, write_mode: upsert", vec![ids([2, 2], "10.0.0.7")]).await.is_empty());
    assert_eq!(stored(&server, query), ["1 10.0.0.1", "2 10.0.0.7"]);
    let keyless = batch_of(vec![("ip", texts(&[Some("10.0.0.1")]))]);
    let refused = write(&server, "table: t, write_mode: upsert", vec![keyless]).await;
    assert_eq!(refused, [(0, "a column of the key of `t` has no value".to_owned())]);
    let chosen = "table: t, columns: { id: n, line: payload }";
    assert!(write(&server, chosen, vec![batch_of(vec![("n", ints([9]))])]).await.is_empty());
    assert_eq!(stored(&server, "SELECT line FROM t WHERE id = 9"), ["-"]);
    // Many refused rows cost few statements.
    let again = batch_of(vec![("id", ints((0..1000).map(|n| n % 2 + 1)))]);
    let refused = write(&server, "table: t", vec![again]).await;
    assert_eq!(refused.len(), 1000);
    assert!(refused[999].1.starts_with("refused with "), "{:?}", refused[999]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_lacks_at_the_start_is_named() {
    let server = block_in_place(|| Postgres::start().unwrap());
    run(&server, "CREATE TABLE t (id int)");
    for (options, expected) in [
        ("table: none", "there is no table `none`: create it, or correct `table`"),
        ("table: t, columns: { absent: payload }", "`t` has no column `absent` that can be stored"),
        (
            "table: t, write_mode: upsert",
            "`t` has no primary key: name the columns of a unique index in `key`",
        ),
        (
            "table: t, exactly_once: true",
            "`exactly_once` needs `--state`: a run without one reads its input again",
        ),
        (
            "table: t, database: none",
            "cannot open a session of `SERVER`: database \"none\" does not exist (3D000)",
        ),
        (
            "table: t, auth: { user: thalweg, password: wrong }, database: shop",
            "cannot open a session of `SERVER`: password authentication failed for user \"thalweg\" (28P01)",
        ),
        ("table: t, tls: {}", "the server `SERVER` has no TLS: remove `tls`, or set the server up for it"),
    ] {
        let failed = testing::write_all::<PostgresSink>(&yaml(&server, options), []).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Permanent, "{}", failed.full());
        let text = failed.full().replace(&server.relayed_address().to_string(), "SERVER");
        assert_eq!(text, expected, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_stored_over_tls_if_the_certificate_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &certificate).unwrap();
    let settings = ["ssl=on", "ssl_cert_file=server.crt", "ssl_key_file=server.key"];
    let files = [("server.crt", certificate.as_str()), ("server.key", key.as_str())];
    let server = block_in_place(|| Postgres::start_with(&settings, &files).unwrap());
    run(
        &server,
        "CREATE FUNCTION is_encrypted() RETURNS bool LANGUAGE sql
             AS 'SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()';
         CREATE TABLE t (id int, is_encrypted bool DEFAULT is_encrypted())",
    );
    let ids = || vec![batch_of(vec![("id", ints([1]))])];
    let trusting = format!("table: t, tls: {{ ca: '{}' }}", ca.display());
    assert!(write(&server, &trusting, ids()).await.is_empty());
    let wrong = testing::write_all::<PostgresSink>(&yaml(&server, "table: t, tls: {}"), ids()).await;
    let wrong = wrong.unwrap_err().full();
    assert!(wrong.contains("TLS with the server") && wrong.contains("certificate"), "{wrong}");
    assert_eq!(stored(&server, "SELECT id, is_encrypted FROM t"), ["1 t"]);
}

/// Opens a sink with a state that the folder keeps.
async fn resumed(server: &Postgres, folder: &std::path::Path) -> Box<dyn Sink> {
    let store = Arc::new(Store::open(folder).unwrap());
    let context = thalweg_engine::Context {
        resumes: true,
        journal: Some(Journal::new(store, "out")),
        ..testing::context()
    };
    let config: PostgresSink = options(&yaml(server, "table: t, exactly_once: true"));
    let mut sink = config.build(&context).unwrap();
    sink.open(None).await.unwrap();
    sink
}

fn at(positions: std::ops::Range<u64>) -> Batch {
    let batch = batch_of(vec![("id", ints(positions.clone().map(|position| position as i64)))]);
    let meta = Meta { sequence: Some("numbers".into()), ..(**batch.meta()).clone() };
    let messages = Batch::new(batch.payload().clone(), Arc::new(meta), Ack::noop());
    let messages = messages.with_fields(batch.fields().clone()).unwrap();
    messages.with_positions(UInt64Array::from_iter_values(positions)).unwrap()
}

/// Writes a batch as the engine does: again after each temporary error. Returns the refused rows.
async fn write_until_stored(sink: &mut dyn Sink, batch: Batch) -> Vec<u32> {
    let rejected = testing::write_until_durable(sink, batch, |_| {}).await;
    rejected.into_iter().map(|(row, _)| row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_come_again_are_stored_once_and_refused_ones_are_tried_again() {
    let mut server = block_in_place(|| Postgres::start().unwrap());
    run(&server, "CREATE TABLE t (id bigint CHECK (id <> 5))");
    let folder = tempfile::tempdir().unwrap();
    let mut first = resumed(&server, folder.path()).await;
    assert_eq!(write_until_stored(&mut *first, at(0..10)).await, [5]);
    assert_eq!(first.uncommitted(), 1);
    server.cut();
    assert_eq!(write_until_stored(&mut *first, at(10..20)).await, [0; 0]);
    block_in_place(|| {
        server.kill().unwrap();
        server.restart().unwrap();
    });
    assert_eq!(write_until_stored(&mut *first, at(20..30)).await, [0; 0]);
    drop(first);
    // A later run begins at an earlier checkpoint, and divides messages into other batches.
    run(&server, "ALTER TABLE t DROP CONSTRAINT t_id_check");
    let mut second = resumed(&server, folder.path()).await;
    assert_eq!(write_until_stored(&mut *second, at(3..17)).await, [0; 0]);
    assert_eq!(write_until_stored(&mut *second, at(17..35)).await, [0; 0]);
    assert_eq!(
        stored(&server, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t"),
        ["35 35 0 34"]
    );
    // The state of another run has another name.
    let other = tempfile::tempdir().unwrap();
    let mut third = resumed(&server, other.path()).await;
    assert_eq!(write_until_stored(&mut *third, at(0..1)).await, [0; 0]);
    assert_eq!(stored(&server, "SELECT count(*) FROM t"), ["36"]);
    assert_eq!(stored(&server, "SELECT count(*) FROM thalweg_positions"), ["2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_read_behind_a_commit_of_a_former_run_whatever_the_default_isolation() {
    let server = block_in_place(|| Postgres::start().unwrap());
    run(
        &server,
        "CREATE TABLE t (id bigint); ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'",
    );
    let folder = tempfile::tempdir().unwrap();
    let mut first = resumed(&server, folder.path()).await;
    assert_eq!(write_until_stored(&mut *first, at(0..10)).await, [0; 0]);
    drop(first);
    // The former run had sent its commit, which the server executes once the next run waits.
    let lock = "SELECT ('x' || left(sink, 16))::bit(64)::bigint FROM thalweg_positions";
    let lock = block_in_place(|| server.value(lock).unwrap());
    let commit = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({lock}); INSERT INTO t SELECT generate_series(10, 19);
         UPDATE thalweg_positions SET position = 19;
         DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)
             LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;
         COMMIT"
    );
    let mut second = block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| server.run(&commit).unwrap());
            while server.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").unwrap() == "0" {
                std::thread::yield_now();
            }
            tokio::runtime::Handle::current().block_on(resumed(&server, folder.path()))
        })
    });
    assert_eq!(write_until_stored(&mut *second, at(5..25)).await, [0; 0]);
    assert_eq!(stored(&server, "SELECT count(*), count(DISTINCT id) FROM t"), ["25 25"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_beyond_a_limit_of_the_server_is_refused_and_domains_and_included_columns_are_known() {
    let server = block_in_place(|| Postgres::start().unwrap());
    run(
        &server,
        "CREATE DOMAIN short AS varchar(5) NOT NULL DEFAULT 'z';
         CREATE TABLE t (id int, made int DEFAULT 1, name short, extra jsonb, PRIMARY KEY (id) INCLUDE (made))",
    );
    let deep = "[".repeat(100_000);
    let fields = RecordBatch::try_from_iter([("id", ints([1, 2, 3]))]).unwrap();
    let messages = batch(["[]", deep.as_str(), "[]"]).with_fields(fields).unwrap();
    let chosen = "table: t, write_mode: upsert, columns: { id: id, extra: payload }";
    let refused = write(&server, chosen, vec![messages]).await;
    let [(1, reason)] = &refused[..] else { panic!("{refused:?}") };
    assert!(reason.starts_with("stack depth limit exceeded"), "{reason}");
    assert_eq!(stored(&server, "SELECT id, name FROM t ORDER BY id"), ["1 z", "3 z"]);
}

/// The server takes no `COPY` there; each attempt ended alike, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_go_into_views_and_tables_with_row_security_and_forbidden_ones_are_refused() {
    let server = block_in_place(|| Postgres::start().unwrap());
    run(
        &server,
        "CREATE TABLE t (id int); CREATE VIEW plain AS SELECT id FROM t;
         CREATE TABLE owned (id int); ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
         CREATE POLICY small ON owned FOR INSERT WITH CHECK (id < 10);
         GRANT INSERT ON owned TO thalweg",
    );
    let ids = || vec![batch_of(vec![("id", ints([1, 20, 3]))])];
    assert!(write(&server, "table: plain", ids()).await.is_empty());
    assert_eq!(stored(&server, "SELECT count(*) FROM t"), ["3"]);
    let user = format!("auth: {{ user: thalweg, password: {} }}, database: postgres", Postgres::PASSWORD);
    let refused = write(&server, &format!("table: owned, {user}"), ids()).await;
    let forbidden = "new row violates row-level security policy for table \"owned\" (42501)";
    assert_eq!(refused, [(1, forbidden.to_owned())]);
    assert_eq!(stored(&server, "SELECT id FROM owned ORDER BY id"), ["1", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_into_which_nothing_can_be_stored_ends_the_run() {
    let server = block_in_place(|| Postgres::start().unwrap());
    run(
        &server,
        "CREATE TABLE t (id int); CREATE VIEW grouped AS SELECT id FROM t GROUP BY id;
         CREATE TABLE closed (id int)",
    );
    let user = format!("auth: {{ user: thalweg, password: {} }}, database: postgres", Postgres::PASSWORD);
    for (options, expected) in [
        (
            "table: grouped".to_owned(),
            "cannot store rows in `grouped`: cannot insert into view \"grouped\": ",
        ),
        (
            format!("table: closed, {user}"),
            "cannot store rows in `closed`: permission denied for table closed (42501)",
        ),
    ] {
        let ids = batch_of(vec![("id", ints([1]))]);
        let failed = testing::write_all::<PostgresSink>(&yaml(&server, &options), [ids]).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Permanent, "{}", failed.full());
        assert!(failed.full().starts_with(expected), "{}", failed.full());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_value_of_an_identity_is_inserted_and_not_replaced() {
    let server = block_in_place(|| Postgres::start().unwrap());
    run(&server, "CREATE TABLE t (id int PRIMARY KEY, made int GENERATED ALWAYS AS IDENTITY, name text)");
    let both = || vec![batch_of(vec![("id", ints([1])), ("made", ints([7]))])];
    assert!(write(&server, "table: t", both()).await.is_empty());
    let refused = write(&server, "table: t, write_mode: upsert", both()).await;
    assert_eq!(refused, [(0, "the server computes the column `made` of `t`".to_owned())]);
    let named = vec![batch_of(vec![("id", ints([1])), ("name", texts(&[Some("new")]))])];
    assert!(write(&server, "table: t, write_mode: upsert", named).await.is_empty());
    assert_eq!(stored(&server, "SELECT made, name FROM t"), ["7 new"]);
}
