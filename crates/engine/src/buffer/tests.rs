use std::collections::{BTreeMap, VecDeque};
use std::fs::OpenOptions;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::log::{Limits, Log, Total};
use super::{FOLDER, find_buffers};
use crate::segments::read::{Next, Segment};
use crate::segments::write::Refusal;
use crate::segments::{Entry, OPEN, entries};
use crate::settings::WhenBufferFull;
use crate::testing::batch;

/// Segments of 64 KiB, the smallest.
const LIMIT: u64 = 256 << 10;

fn limits(when_full: WhenBufferFull) -> Limits {
    Limits { bytes: LIMIT, when_full, linger: Duration::ZERO }
}

/// Messages that wait, in one block.
#[derive(Debug)]
struct Waiting {
    lines: Vec<String>,
    /// The segment, and the offset of the end of the block.
    number: u32,
    end: u64,
}

/// A buffer, a reader whose positions are saved at once, and the messages that must come.
struct Model {
    state: TempDir,
    log: Log,
    when_full: WhenBufferFull,
    current: Option<Segment>,
    saved: BTreeMap<String, u64>,
    waiting: VecDeque<Waiting>,
    /// The segment that was synced last, and up to where.
    synced: (u32, u64),
    written: usize,
}

impl Model {
    fn new(when_full: WhenBufferFull) -> Self {
        let state = tempfile::tempdir().unwrap();
        let log = open(&state, when_full);
        let (saved, waiting) = (BTreeMap::new(), VecDeque::new());
        Self { state, log, when_full, current: None, saved, waiting, synced: (0, 0), written: 0 }
    }

    /// The segment that is being written, and its length.
    fn written_to(&self) -> Option<(u32, u64)> {
        let found = entries(&folder(&self.state)).unwrap();
        let open = found.into_iter().rfind(|entry| entry.kind == OPEN);
        open.map(|Entry { number, bytes, .. }| (number, bytes))
    }

    fn append(&mut self, rows: usize, size: usize) {
        let lines: Vec<String> =
            (0..rows).map(|row| format!("{} {}", self.written + row, "x".repeat(size))).collect();
        let appended = self.log.append(&batch(&lines));
        self.drop_oldest();
        match appended {
            Ok(()) => {
                self.written += rows;
                let (number, end) = self.written_to().unwrap();
                self.waiting.push_back(Waiting { lines, number, end });
            }
            Err(Refusal::Full) => assert!(self.log.bytes() > LIMIT / 2),
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    /// Whole segments are dropped.
    fn drop_oldest(&mut self) {
        let found = entries(&folder(&self.state)).unwrap();
        self.waiting.retain(|waiting| found.iter().any(|entry| entry.number == waiting.number));
    }

    fn sync(&mut self) {
        self.log.sync().unwrap();
        self.synced = self.written_to().unwrap_or_default();
    }

    /// Reads a block. Returns false if there is none.
    fn read(&mut self) -> bool {
        loop {
            if self.current.is_none() {
                let saved = &self.saved;
                self.current = self.log.begin_next(|partition| saved.get(partition).copied()).unwrap();
            }
            let Some(segment) = &mut self.current else { return false };
            let (length, is_finished) = self.log.extent(segment.number());
            segment.grow(length);
            match segment.next().unwrap() {
                Next::End if !is_finished => return false,
                Next::End => {
                    self.log.remove(segment.number(), segment.is_damaged()).unwrap();
                    self.saved.remove(&segment.partition());
                    self.current = None;
                }
                Next::Rubbish { bytes } => panic!("{bytes} bytes are no block"),
                Next::Block { bytes, rows } => {
                    let mut body = vec![0; bytes];
                    segment.fill(&mut body).unwrap();
                    let messages = segment.decode(body.into()).unwrap().unwrap();
                    self.log.note_read(rows as u64);
                    self.saved.insert(segment.partition(), segment.offset());
                    let found: Vec<String> = messages
                        .payloads()
                        .unwrap()
                        .iter()
                        .flatten()
                        .map(|line| String::from_utf8(line.to_vec()).unwrap())
                        .collect();
                    assert_eq!(found, self.waiting.pop_front().unwrap().lines);
                    return true;
                }
            }
        }
    }

    /// Kills the process. Of what was not synced, the system loses all but some thousandths of the bytes.
    fn kill(&mut self, kept: u64) {
        let open = self.written_to();
        if let Some((number, length)) = open {
            let synced = if self.synced.0 == number { self.synced.1 } else { 0 };
            let end = synced + (length - synced) * kept / 1000;
            let path = folder(&self.state).join(format!("{number:08}.open"));
            OpenOptions::new().write(true).open(path).unwrap().set_len(end).unwrap();
            self.waiting.retain(|waiting| waiting.number != number || waiting.end <= end);
        }
        self.restart();
    }

    fn restart(&mut self) {
        self.current = None;
        // The lock of the last segment ends with its file.
        let other = tempfile::tempdir().unwrap();
        self.log = open(&other, self.when_full);
        self.log = open(&self.state, self.when_full);
        self.synced = (0, 0);
    }

    fn check_counts(&self) {
        let found = entries(&folder(&self.state)).unwrap();
        assert_eq!(self.log.bytes(), found.iter().map(|entry| entry.bytes).sum::<u64>());
        assert!(self.log.bytes() <= LIMIT);
    }
}

fn folder(state: &TempDir) -> std::path::PathBuf {
    state.path().join(FOLDER).join("out")
}

fn open(state: &TempDir, when_full: WhenBufferFull) -> Log {
    Log::open(folder(state), limits(when_full), Total::new(None)).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Append {
        rows: usize,
        size: usize,
    },
    Sync,
    Read,
    Kill(u64),
    /// The run ends as it should.
    Finish,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..8usize, 0..3000usize).prop_map(|(rows, size)| Step::Append { rows, size }),
        1 => Just(Step::Sync),
        4 => Just(Step::Read),
        1 => (0..=1000u64).prop_map(Step::Kill),
        1 => Just(Step::Finish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_appended_is_read_once_and_in_order_whatever_happens_between(
        steps in prop::collection::vec(step(), 1..120),
        drops in any::<bool>(),
    ) {
        let when_full = if drops { WhenBufferFull::DropOldest } else { WhenBufferFull::Wait };
        let mut model = Model::new(when_full);
        for step in steps {
            match step {
                Step::Append { rows, size } => model.append(rows, size),
                Step::Sync => model.sync(),
                Step::Read => drop(model.read()),
                Step::Kill(kept) => model.kill(kept),
                Step::Finish => {
                    model.log.finish().unwrap();
                    model.restart();
                }
            }
            model.check_counts();
        }
        model.log.finish().unwrap();
        while model.read() {}
        prop_assert!(model.waiting.is_empty(), "lost: {:?}", model.waiting);
        prop_assert_eq!((model.log.bytes(), model.log.unread()), (0, 0));
        prop_assert_eq!(entries(&folder(&model.state)).unwrap(), vec![]);
    }
}

/// The new segment had the number of the one that was removed, which the reader had read.
#[test]
fn what_is_appended_after_the_segments_of_a_former_run_are_removed_is_read() {
    let mut model = Model::new(WhenBufferFull::Wait);
    model.append(1, 0);
    model.log.finish().unwrap();
    model.restart();
    assert!(model.read() && !model.read());
    model.append(1, 0);
    assert!(model.read() && model.waiting.is_empty());
}

#[test]
fn buffers_share_the_limit_of_the_process_and_a_batch_larger_than_it_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let total = Total::new(Some(100 << 10));
    let open = |name: &str| {
        Log::open(state.path().join(FOLDER).join(name), limits(WhenBufferFull::Wait), total.clone()).unwrap()
    };
    let (one, other) = (open("one"), open("other"));
    let large = batch(["x".repeat(40 << 10)]);
    one.append(&large).unwrap();
    other.append(&large).unwrap();
    assert!(matches!(other.append(&large), Err(Refusal::Full)));
    assert!(matches!(other.append(&batch(["x".repeat(200 << 10)])), Err(Refusal::TooLarge)));
    one.finish().unwrap();
    one.remove(1, false).unwrap();
    other.append(&large).unwrap();
}

#[test]
fn buffers_are_found_while_they_are_written() {
    let state = tempfile::tempdir().unwrap();
    assert!(find_buffers(state.path()).unwrap().is_empty());
    let log = open(&state, WhenBufferFull::Wait);
    log.append(&batch(["one", "two"])).unwrap();
    log.append(&batch(["three"])).unwrap();
    let found = find_buffers(state.path()).unwrap();
    assert_eq!((found.len(), found[0].name.as_str(), found[0].segments.len()), (1, "out", 1));
    let segment = &found[0].segments[0];
    assert_eq!((segment.messages, segment.bytes, segment.is_kept), (3, log.bytes(), false));
    let parts: Vec<usize> = segment
        .parts()
        .unwrap()
        .map(|part| match part.unwrap() {
            super::Part::Messages(messages) => messages.rows(),
            super::Part::Damage(why) => panic!("{why}"),
        })
        .collect();
    assert_eq!(parts, [2, 1]);
}
