use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use arrow_buffer::Buffer;
use proptest::prelude::*;

use super::read::{Next, Segment, dispose, list};
use super::write::{Bounds, Refusal, Writer};
use super::{BLOCK_HEAD, OPEN, path_of};
use crate::testing::batch;

fn writer(folder: &Path, file_bytes: u64) -> Writer {
    let bounds = Bounds {
        folder: folder.to_owned(),
        file_bytes,
        file_age: Duration::from_secs(3600),
        bytes: None,
        fsync: false,
    };
    let mut writer = Writer::new(bounds);
    writer.open().unwrap();
    writer
}

/// Returns the payloads of a segment, and true if all of it could be read.
fn read(folder: &Path, number: u32) -> (Vec<String>, bool) {
    let mut segment = Segment::open(folder, number).unwrap();
    let mut found = Vec::new();
    loop {
        match segment.next().unwrap() {
            Next::End => return (found, !segment.is_damaged()),
            Next::Rubbish { .. } => segment.skip_rest(),
            Next::Block { bytes, rows } => {
                let mut body = vec![0; bytes];
                segment.fill(&mut body).unwrap();
                if let Ok(messages) = segment.decode(Buffer::from_vec(body)).unwrap() {
                    assert_eq!(messages.rows(), rows);
                    let (reading, fields) = messages.part(0, rows).unwrap();
                    assert_eq!(fields.num_rows(), rows);
                    let payload = reading.payload;
                    found.extend(
                        (0..rows).map(|row| String::from_utf8_lossy(payload.value(row)).into_owned()),
                    );
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Writes a batch with this number of messages.
    Write(usize),
    /// Ends the writing process. With a number, its last block is torn after that many thousandths.
    Crash(Option<usize>),
    /// Finishes the current segment.
    Finish,
    /// Reads the oldest segment and removes it.
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..20usize).prop_map(Step::Write),
        1 => prop::option::of(0..1000usize).prop_map(Step::Crash),
        1 => Just(Step::Finish),
        2 => Just(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_is_read_in_order_whatever_happens_between(
        steps in prop::collection::vec(step(), 1..60),
        file_bytes in 1..20_000u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut writing = writer(folder, file_bytes);
        let mut expected: VecDeque<String> = VecDeque::new();
        let mut count = 0;
        let take = |expected: &mut VecDeque<String>| -> Result<bool, TestCaseError> {
            let Some(&number) = list(folder).unwrap().finished.first() else { return Ok(false) };
            let (found, is_whole) = read(folder, number);
            prop_assert!(is_whole);
            let length = found.len().min(expected.len());
            prop_assert_eq!(found, expected.drain(..length).collect::<Vec<_>>());
            dispose(&path_of(folder, number, "spool"), false).unwrap();
            Ok(true)
        };
        for step in steps {
            match step {
                Step::Write(messages) => {
                    let lines: Vec<String> =
                        (count..count + messages).map(|n| format!("{n} {}", "x".repeat(n % 50))).collect();
                    count += messages;
                    writing.append(&batch(&lines)).unwrap();
                    expected.extend(lines);
                }
                Step::Crash(torn) => {
                    drop(writing);
                    let open = super::entries(folder).unwrap().into_iter().rfind(|entry| entry.kind == OPEN);
                    if let (Some(torn), Some(open)) = (torn, open) {
                        // The unfinished block is written to another spool first, and a part of it is copied
                        // from there.
                        let other = tempfile::tempdir().unwrap();
                        let mut lost = writer(other.path(), 1 << 20);
                        lost.append(&batch(["lost"])).unwrap();
                        drop(lost);
                        let whole = fs::read(path_of(other.path(), 1, OPEN)).unwrap();
                        let block = &whole[super::HEAD..];
                        let part = &block[..block.len() * torn / 1000];
                        OpenOptions::new().append(true).open(open.path).unwrap().write_all(part).unwrap();
                    }
                    writing = writer(folder, file_bytes);
                }
                Step::Finish => writing.finish_segment().unwrap(),
                Step::Read => drop(take(&mut expected)?),
            }
        }
        writing.finish_segment().unwrap();
        while take(&mut expected)? {}
        prop_assert!(expected.is_empty(), "lost: {:?}", expected);
        prop_assert_eq!(super::entries(folder).unwrap(), vec![]);
    }

    #[test]
    fn a_damaged_segment_gives_no_message_that_was_not_written(
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut writing = writer(folder, 1 << 20);
        let lines: Vec<Vec<String>> =
            (0..5).map(|n| (0..3).map(|m| format!("message {n}-{m} {}", "y".repeat(30))).collect()).collect();
        lines.iter().for_each(|lines| writing.append(&batch(lines)).unwrap());
        writing.finish_segment().unwrap();
        let path = path_of(folder, 1, "spool");
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, &bytes).unwrap();
        let (found, _) = read(folder, 1);
        let all: Vec<&String> = lines.iter().flatten().collect();
        let mut rest = all.iter();
        for message in &found {
            prop_assert!(rest.any(|line| *line == message), "{message} was not written, or in another order");
        }
    }
}

#[test]
fn a_block_in_another_place_or_file_is_not_taken_for_one() {
    let head = super::BlockHead::of(b"body", 1);
    let bytes = head.write(7, 24);
    assert_eq!(super::BlockHead::read(&bytes, 7, 24), Some(head));
    assert_eq!(super::BlockHead::read(&bytes, 7, 25), None);
    assert_eq!(super::BlockHead::read(&bytes, 8, 24), None);
}

#[test]
fn a_segment_that_is_written_is_not_read_and_two_writers_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut one, mut two) = (writer(folder, 1 << 20), writer(folder, 1 << 20));
    one.append(&batch(["one"])).unwrap();
    two.append(&batch(["two"])).unwrap();
    let listing = list(folder).unwrap();
    assert!(listing.finished.is_empty() && listing.is_written);
    one.finish_segment().unwrap();
    drop(two);
    let listing = list(folder).unwrap();
    assert_eq!((listing.finished, listing.is_written), (vec![1, 2], false));
    assert_eq!(read(folder, 2), (vec!["two".to_owned()], true));
}

#[test]
fn a_batch_that_does_not_fit_is_not_written_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let mut bounded = Writer::new(Bounds {
        folder: folder.path().to_owned(),
        file_bytes: 1 << 20,
        file_age: Duration::from_secs(3600),
        bytes: Some(2000),
        fsync: true,
    });
    bounded.open().unwrap();
    let mut written = 0;
    while bounded.append(&batch(["x".repeat(200)])).is_ok() {
        written += 1;
    }
    assert!(written > 0);
    assert!(matches!(bounded.append(&batch(["x".repeat(3000)])), Err(Refusal::TooLarge)));
    bounded.sync().unwrap();
    bounded.finish_segment().unwrap();
    assert_eq!(read(folder.path(), 1).0.len(), written);
    let size = fs::metadata(path_of(folder.path(), 1, "spool")).unwrap().len();
    assert!(size <= 2000 && size > BLOCK_HEAD as u64);
}

#[test]
fn records_without_fields_stay_records() {
    for is_record in [true, false] {
        let messages = if is_record { batch(["{}", "{}"]).into_records() } else { batch(["{}", "{}"]) };
        let mut bytes = Vec::new();
        super::block::encode(&messages, &mut bytes).unwrap();
        let read = super::block::Messages::decode(Buffer::from_vec(bytes)).unwrap();
        let (_, fields) = read.part(1, 1).unwrap();
        assert_eq!(fields.num_rows(), 1);
        assert_eq!(thalweg_record::is_record(fields.schema_ref()), is_record);
    }
}

#[test]
fn the_origin_of_messages_is_kept_with_the_sequence_of_their_positions() {
    for sequence in [None, Some("events/3".into())] {
        let plain = batch(["a"]);
        let meta = thalweg_record::Meta { sequence, ..(**plain.meta()).clone() };
        let ack = thalweg_record::Ack::noop();
        let messages =
            thalweg_record::Batch::new(plain.payload().clone(), std::sync::Arc::new(meta.clone()), ack);
        let mut bytes = Vec::new();
        super::block::encode(&messages, &mut bytes).unwrap();
        assert_eq!(super::block::Messages::decode(Buffer::from_vec(bytes)).unwrap().meta, meta);
    }
}
