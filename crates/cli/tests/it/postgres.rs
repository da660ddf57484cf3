//! Tables that are copied by processes that are killed, and by one whose server fails.

use std::process::{Child, Stdio};
use std::time::Duration;

use thalweg_testbed::{Patience, Postgres};

use crate::common::{self, House};

/// The number of rows.
const ROWS: u32 = 30_000;

/// A server with a table of numbered rows, and an empty one of the same columns without a key: it would take
/// a row twice.
fn numbered() -> Postgres {
    let server = Postgres::start().unwrap();
    server
        .run(&format!(
            "CREATE TABLE numbers (id bigint PRIMARY KEY, name text NOT NULL, at timestamptz, amount numeric(12, 2),
                 tags text[], at_day date, note text);
             INSERT INTO numbers SELECT n, 'name ' || n, now() - n * interval '1 s', n / 7.0, ARRAY['a', n::text],
                 current_date - n % 1000, NULLIF(repeat('x', n % 50), '') FROM generate_series(1, {ROWS}) AS n;
             CREATE TABLE copies (id bigint, name text, at timestamptz, amount numeric, tags jsonb, at_day date,
                 note text)"
        ))
        .unwrap();
    server
}

fn house(address: &str) -> House {
    House::with(&[(
        "copy.yaml",
        &format!(
            "memory: 2MiB\n\
             sources: {{ in: {{ postgres: {{ server: '{address}', table: numbers, partitions: 3, timeout: 5s }} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [limit: {{ rate: 8000, burst: 500 }}], to: out }} }}\n\
             sinks: {{ out: {{ postgres: {{ server: '{address}', table: copies, exactly_once: true, timeout: 5s }} }} }}\n"
        ),
    )])
}

fn started(house: &House) -> Child {
    let mut command = house.command(&["run", "copy.yaml", "--state", "state", "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn stored(server: &Postgres) -> u32 {
    server.value("SELECT count(*) FROM copies").unwrap().parse().unwrap()
}

/// Waits until more than `count` rows are stored, or the process has ended.
fn wait_for(server: &Postgres, child: &mut Child, count: u32) {
    let patience = Patience::begin();
    while stored(server) <= count && child.try_wait().unwrap().is_none() {
        patience.check(|| format!("{} rows are stored", stored(server)));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asserts that the copy has each row once, as it was.
fn assert_same(server: &Postgres) {
    let columns = "id, name, at, amount, to_jsonb(tags) AS tags, at_day, note";
    for (one, other) in [("numbers", "copies"), ("copies", "numbers")] {
        let query = format!(
            "SELECT count(*) FROM (SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}) AS x"
        );
        assert_eq!(server.value(&query).unwrap(), "0", "rows of {one} that {other} lacks");
    }
}

#[test]
fn a_copy_from_table_to_table_that_is_killed_ten_times_has_each_row_once() {
    let server = numbered();
    let house = house(&server.address().to_string());
    for _ in 0..10 {
        let before = stored(&server);
        let mut child = started(&house);
        wait_for(&server, &mut child, before + 300);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(stored(&server) < ROWS, "the runs were not interrupted");
    house.run_well(&["run", "copy.yaml", "--state", "state", "--quiet"]);
    assert_same(&server);
    // A later run reads what was added.
    server.run("INSERT INTO numbers (id, name) VALUES (1000000, 'new')").unwrap();
    house.run_well(&["run", "copy.yaml", "--state", "state", "--quiet"]);
    assert_same(&server);
}

#[test]
fn a_copy_goes_on_when_connections_break_and_the_server_crashes() {
    let mut server = numbered();
    let house = house(&server.relayed_address().to_string());
    let mut child = started(&house);
    for fault in 0..4 {
        let before = stored(&server);
        wait_for(&server, &mut child, before + 300);
        match fault {
            2 => {
                server.kill().unwrap();
                server.restart().unwrap();
            }
            _ => server.cut(),
        }
    }
    let ended = common::said(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_same(&server);
}

#[test]
fn a_wrong_password_and_a_missing_table_end_a_run_with_a_message_without_secrets() {
    let server = Postgres::start().unwrap();
    let run = |auth: &str, table: &str| {
        let house = House::with(&[(
            "read.yaml",
            &format!(
                "sources: {{ in: {{ postgres: {{ server: '{}', database: shop, {auth}, table: {table} }} }} }}\n\
                 pipelines: {{ main: {{ from: in, to: out }} }}\n\
                 sinks: {{ out: {{ discard: {{}} }} }}\n",
                server.address()
            ),
        )]);
        let said = house.run(&["run", "read.yaml"]);
        assert_ne!(said.code, Some(0), "{}", said.err);
        said.err
    };
    let refused = run("auth: { user: thalweg, password: wrong-pass-71 }", "t");
    assert!(refused.contains("password authentication failed for user \"thalweg\""), "{refused}");
    assert!(!refused.contains("wrong-pass-71"), "{refused}");
    let right = format!("auth: {{ user: thalweg, password: {} }}", Postgres::PASSWORD);
    let missing = run(&right, "no_such_table");
    assert!(missing.contains("relation \"no_such_table\" does not exist"), "{missing}");
}

#[test]
fn refused_rows_are_dead_letters_with_the_servers_reason() {
    let server = Postgres::start().unwrap();
    server.run("CREATE TABLE visits (id int PRIMARY KEY, name varchar(5), CHECK (id <> 3))").unwrap();
    let house = House::with(&[
        (
            "in.jsonl",
            "{\"id\": 1, \"name\": \"a\"}\n{\"id\": 2, \"name\": \"too long\"}\n{\"id\": 3}\n{\"id\": 4}\n",
        ),
        (
            "store.yaml",
            &format!(
                "sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}\n\
                 pipelines: {{ main: {{ from: in, transforms: [parse_json: {{}}], to: out }} }}\n\
                 sinks: {{ out: {{ postgres: {{ server: '{}', table: visits }} }} }}\n",
                server.address()
            ),
        ),
    ]);
    house.run_well(&["run", "store.yaml"]);
    assert_eq!(server.rows("SELECT id FROM visits ORDER BY id").unwrap(), [["1"], ["4"]]);
    let letters = house.run_well(&["errors", "list", "store.yaml", "--json"]);
    for reason in ["value too long for type character varying(5)", "violates check constraint"] {
        assert!(letters.out.contains(reason), "{reason}: {} {}", letters.out, letters.err);
    }
}

#[test]
fn a_buffer_on_disk_before_a_sink_that_knows_positions_is_a_mistake() {
    let check = |pipeline: &str, sink: &str, once: bool| {
        let text = format!(
            "state: state\n\
             sources: {{ in: {{ file: {{ path: '*.log' }} }} }}\n\
             pipelines: {{ first: {{ from: in, to: main }}, main: {{ to: out{pipeline} }} }}\n\
             sinks: {{ out: {{ postgres: {{ server: 'a:1', table: lines, exactly_once: {once} }}{sink} }} }}\n"
        );
        let said = House::with(&[("x.yaml", &text)]).run(&["check", "x.yaml"]);
        // Lines are wrapped.
        let err = said.err.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        (said.code == Some(0), err)
    };
    let buffer = ", buffer: { disk: 16MiB }";
    for (pipeline, sink, of) in [(buffer, "", "main"), ("", buffer, "out")] {
        let (is_valid, err) = check(pipeline, sink, true);
        assert!(!is_valid && err.contains(&format!("`{of}` has a buffer on disk, but `out`")), "{err}");
        let (is_valid, err) = check(pipeline, sink, false);
        assert!(is_valid, "{err}");
    }
    let (is_valid, err) = check("", "", true);
    assert!(is_valid, "{err}");
}

#[test]
fn a_file_that_is_replaced_or_renamed_between_runs_is_stored_once() {
    let server = Postgres::start().unwrap();
    server.run("CREATE TABLE lines (line text)").unwrap();
    let configuration = format!(
        "sources: {{ in: {{ file: {{ path: '*.log' }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out }} }}\n\
         sinks: {{ out: {{ postgres: {{ server: '{}', table: lines, columns: {{ line: payload }}, \
         exactly_once: true }} }} }}\n",
        server.address()
    );
    let house = House::with(&[("a.log", "one\ntwo\nthree\n"), ("store.yaml", &configuration)]);
    let stored = || {
        house.run_well(&["run", "store.yaml", "--state", "state", "--quiet"]);
        server.value("SELECT string_agg(line, ' ' ORDER BY line) FROM lines").unwrap()
    };
    assert_eq!(stored(), "one three two");
    // Shorter than what is stored of the file before.
    house.write("a.log", b"four\n");
    assert_eq!(stored(), "four one three two");
    std::fs::rename(house.path().join("a.log"), house.path().join("b.log")).unwrap();
    house.write("a.log", b"five\n");
    assert_eq!(stored(), "five four one three two");
}

#[test]
fn a_file_that_is_rewritten_after_a_kill_before_its_first_checkpoint_is_stored_as_a_whole() {
    let server = Postgres::start().unwrap();
    server.run("CREATE TABLE lines (line text)").unwrap();
    let configuration = format!(
        "sources: {{ in: {{ file: {{ path: in.log }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out }} }}\n\
         sinks: {{ out: {{ postgres: {{ server: '{}', table: lines, columns: {{ line: payload }}, \
         exactly_once: true }} }} }}\n",
        server.address()
    );
    let house = House::with(&[("in.log", "one\ntwo\n"), ("store.yaml", &configuration)]);
    let arguments = ["run", "store.yaml", "--state", "state", "--quiet"];
    let stored = || server.value("SELECT string_agg(line, ' ' ORDER BY line) FROM lines").unwrap();
    let killed = |expected: &str| {
        let mut command = house.command(&arguments);
        command.env("THALWEG_FAILPOINTS", "checkpoint.before=kill@1");
        let ended = common::said(command.output().unwrap());
        assert_eq!((ended.code, stored()), (None, expected.to_owned()), "{}", ended.err);
    };
    killed("one two");
    // Messages that come again are not stored twice.
    killed("one two");
    // The same file, with other lines at the same places.
    house.write("in.log", b"six\nten\n");
    killed("one six ten two");
    house.run_well(&arguments);
    assert_eq!(stored(), "one six ten two");
}
