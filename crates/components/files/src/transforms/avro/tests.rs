use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_engine::testing::{Arrived, Unpacked, context, file_of, file_output, options, unpack};
use thalweg_record::{Budget, Outcome};

use super::*;
use crate::ahead::testing::sliced;

/// Twenty records of all types, in blocks of a few, as fastavro writes them.
const SAMPLES: [&[u8]; 4] = [
    include_bytes!("../../../../../codec/src/avro/samples/types-null.avro"),
    include_bytes!("../../../../../codec/src/avro/samples/types-deflate.avro"),
    include_bytes!("../../../../../codec/src/avro/samples/types-snappy.avro"),
    include_bytes!("../../../../../codec/src/avro/samples/types-zstandard.avro"),
];

const SCHEMA: &str =
    r#"{"type":"record","name":"r","fields":[{"name":"n","type":"int"},{"name":"t","type":"string"}]}"#;

const MARKER: [u8; 16] = *b"0123456789abcdef";

fn long(value: usize) -> Vec<u8> {
    let mut rest = value * 2;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn bytes(value: &[u8]) -> Vec<u8> {
    [long(value.len()), value.to_vec()].concat()
}

fn header(schema: &str) -> Vec<u8> {
    [b"Obj\x01".to_vec(), long(1), bytes(b"avro.schema"), bytes(schema.as_bytes()), long(0), MARKER.to_vec()]
        .concat()
}

fn record(n: usize, text: &str) -> Vec<u8> {
    [long(n), bytes(text.as_bytes())].concat()
}

fn block(count: usize, data: &[u8]) -> Vec<u8> {
    [long(count), bytes(data), MARKER.to_vec()].concat()
}

/// A container with a block for each list of texts, whose records are numbered.
fn container(blocks: &[Vec<String>]) -> Vec<u8> {
    let mut file = header(SCHEMA);
    let mut number = 0;
    for texts in blocks {
        let mut data = Vec::new();
        for text in texts {
            data.extend(record(number, text));
            number += 1;
        }
        file.extend(block(texts.len(), &data));
    }
    file
}

async fn avro(content: &[u8], batch_bytes: usize) -> Unpacked {
    unpack::<Avro>("{}", &mut file_of("a.avro", content), batch_bytes).await
}

fn numbers(read: &Unpacked) -> Vec<Value> {
    read.rows().iter().map(|row| row["n"].clone()).collect()
}

#[tokio::test]
async fn the_records_of_another_implementation_are_read_in_any_compression() {
    for sample in SAMPLES {
        for batch_bytes in [1, 300, 1 << 20] {
            let read = avro(sample, batch_bytes).await;
            assert!(read.problem.is_none(), "{:?}", read.problem);
            assert_eq!(numbers(&read), (0..20).map(Value::from).collect::<Vec<_>>());
            assert_eq!(read.positions(), (0..20).collect::<Vec<u64>>());
        }
    }
}

#[tokio::test]
async fn the_payload_of_a_record_is_the_record_as_it_is_in_the_file() {
    let read = avro(&container(&[vec!["a".to_owned(), "é".repeat(20)]]), 1 << 10).await;
    let payloads: Vec<&[u8]> = read.main[0].payload().iter().flatten().collect();
    assert_eq!(payloads, [record(0, "a"), record(1, &"é".repeat(20))]);
    assert_eq!(read.rows(), [json!({"n": 0, "t": "a"}), json!({"n": 1, "t": "é".repeat(20)})]);
}

#[tokio::test]
async fn a_record_that_is_malformed_takes_the_rest_of_its_block_with_it() {
    let data = [record(0, "a"), vec![2, 2, 0xff], record(2, "c")].concat();
    let mut file = [header(SCHEMA), block(3, &data), block(1, &record(3, "d"))].concat();
    let offset = header(SCHEMA).len();
    let read = avro(&file, 1 << 10).await;
    assert_eq!(read.rows(), [json!({"n": 0, "t": "a"}), json!({"n": 3, "t": "d"})]);
    assert_eq!(read.positions(), [0, 3]);
    assert_eq!(
        read.errors()[0].1,
        format!(
            "record 1, in the block at byte {offset}: is not a datum of the schema: a text is not UTF-8 (in `t`, at \
             byte 3); 2 records of the block are skipped, and reading continues at the next block"
        )
    );
    assert_eq!(read.errors[0].payload().value(0), [&[2, 2, 0xff][..], &record(2, "c")].concat());
    assert!(read.problem.is_none());
    file = [header(SCHEMA), block(1, &[record(0, "a"), b"xy".to_vec()].concat())].concat();
    let read = avro(&file, 1 << 10).await;
    assert_eq!(read.rows().len(), 1);
    assert!(read.errors()[0].1.contains("2 bytes follow the last record"), "{:?}", read.errors());
}

#[tokio::test]
async fn a_file_that_cannot_be_read_says_why_after_the_records_before() {
    let good = container(&[vec!["a".to_owned()], vec!["b".to_owned()]]);
    let second = container(&[vec!["a".to_owned()]]).len();
    let cut = &good[..good.len() - 1];
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() = 0;
    let many = [header(SCHEMA), block(1 << 40, b"xy")].concat();
    let first = header(SCHEMA).len();
    let large = [header(SCHEMA), long(1), long(100 << 20)].concat();
    let sent = "The messages before that were sent.";
    for (content, rows, reason) in [
        (&b""[..], 0, "the file is not an Avro container: it is empty".to_owned()),
        (
            b"{}",
            0,
            "the file is not an Avro container: it does not begin with `Obj` and the byte 1".to_owned(),
        ),
        (&good[..10], 0, "the file is truncated: it ends within its header".to_owned()),
        (cut, 1, format!("the file is truncated: it ends within the block at byte {second}. {sent}")),
        (
            &damaged[..],
            1,
            format!(
                "the block at byte {second} cannot be read: the marker of the file does not follow it. {sent}"
            ),
        ),
        (
            &many[..],
            0,
            format!("the block at byte {first} cannot be read: it has 1099511627776 data in 2 bytes. {sent}"),
        ),
        (
            &large[..],
            0,
            format!(
                "the block at byte {first} cannot be read: it has more than `max_block_bytes` (16MiB), or too much \
                 for `memory`. {sent}"
            ),
        ),
    ] {
        let read = avro(content, 1 << 10).await;
        assert_eq!(read.rows().len(), rows, "{reason}");
        assert_eq!(read.problem.unwrap().reason, reason);
    }
}

#[tokio::test]
async fn a_later_run_continues_at_the_block_that_was_saved() {
    let blocks: Vec<Vec<String>> = (0..4).map(|number| vec![number.to_string(); 3]).collect();
    let content = container(&blocks);
    let saved = Saved { offset: container(&blocks[..2]).len() as u64, records: 6 };
    let budget = Budget::new(1 << 20);
    let context = context();
    let file = file_of("a.avro", &content);
    let mut reader = Containers {
        arenas: Arenas::new(64),
        memory: 1 << 20,
        block: 1 << 20,
        batch: context.batch_bytes,
        text: 1 << 20,
    };
    let (mut out, main, _errors) = file_output(&budget, 64, &file);
    reader.read(&file, Some(saved), &mut out).await.unwrap();
    drop(out);
    let (mut rows, mut positions) = (Vec::new(), Vec::new());
    while let Some((_, Arrived::Messages(batch))) = main.take().await {
        rows.extend(thalweg_engine::testing::rows(batch.fields()));
        positions.extend(batch.positions().unwrap().values().to_vec());
        batch.settle(Outcome::Delivered);
    }
    let row = |n: i64| json!({"n": n, "t": (n / 3).to_string()});
    assert_eq!(rows, (6..12).map(row).collect::<Vec<_>>());
    assert_eq!(positions, (6..12).collect::<Vec<u64>>());
}

#[test]
fn the_largest_block_has_bounds() {
    let mistakes = |yaml: &str| options::<Avro>(yaml).check().len();
    assert_eq!((mistakes("{}"), mistakes("{ max_block_bytes: 1GiB }")), (0, 0));
    assert_eq!((mistakes("{ max_block_bytes: 0B }"), mistakes("{ max_block_bytes: 2GiB }")), (1, 1));
}

proptest! {
    #[test]
    fn a_container_in_pieces_gives_the_same_records_as_in_one(
        blocks in prop::collection::vec(prop::collection::vec("[a-z]{0,20}", 0..6), 0..6),
        (slice, at_once) in (8..200usize, 1..4usize),
        batch_bytes in 1..200usize,
    ) {
        let content = container(&blocks);
        let texts: Vec<&String> = blocks.iter().flatten().collect();
        let expected: Vec<Value> =
            texts.iter().enumerate().map(|(n, text)| json!({"n": n, "t": text})).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for mut file in [file_of("a.avro", &content), sliced("a.avro", &content, slice, at_once)] {
            let read = runtime.block_on(unpack::<Avro>("{}", &mut file, batch_bytes));
            prop_assert!(read.problem.is_none());
            prop_assert_eq!(read.rows(), expected.clone());
        }
    }

    #[test]
    fn a_container_with_changed_bytes_is_read_or_rejected(
        sample in 0..4usize,
        at: prop::sample::Index,
        byte: u8,
        cut: prop::sample::Index,
    ) {
        let mut content = SAMPLES[sample].to_vec();
        let at = at.index(content.len());
        content[at] = byte;
        content.truncate(cut.index(content.len()) + 1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let read = runtime.block_on(avro(&content, 1 << 10));
        prop_assert!(read.rows().len() <= 4096 + 20);
    }
}
