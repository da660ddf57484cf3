//! A sparse file beside a plain byte map: after the same steps, both hold the same bytes.
//!
//! The steps are decoded from bytes, so that the property test and the fuzzer run the same code.

use std::collections::BTreeMap;
use thalweg_sparse::{Clock, Error, Merge, Options, Overlap, Span, SparseFile};

const PAGE: u64 = 4096;

/// One operation on a file.
#[derive(Debug, Clone)]
pub enum Step {
    Write { position: u64, length: usize, seed: u8, overlap: Overlap },
    Scatter { position: u64, length: usize, count: usize, apart: u64, backwards: bool },
    Read { position: u64, length: usize },
    Need { position: u64, length: u64, greedy: u64 },
    NeedMany { spans: Vec<Span>, greedy: u64 },
    Erase { position: u64, length: u64 },
    EraseBlock { choice: usize },
    EraseBlocks { choice: usize },
    Block { position: u64 },
    Compact,
    Clear,
}

struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u64 {
        u64::from(self.next()) | u64::from(self.next()) << 8
    }

    /// Returns a position near one of the places where errors are likely: the first positions, edges of
    /// chunks, 2^63, the last positions.
    fn position(&mut self) -> u64 {
        let base = match self.next() % 8 {
            0..=2 => 0,
            3 | 4 => (1 << 16) - 300,
            5 => (1 << 63) - 1000,
            6 => 40 << 16,
            _ => u64::MAX - (1 << 17),
        };
        let offset = self.number();
        base + match self.next() % 4 {
            0 => offset % 64,
            1 => offset % 1024,
            2 => offset,
            _ => offset / 256 * 256,
        }
    }

    /// Returns a length from zero bytes to about a mebibyte, mostly short.
    fn length(&mut self) -> usize {
        let number = self.number() as usize;
        match self.next() % 16 {
            0..=5 => 1 + number % 4,
            6..=9 => number % 300,
            10..=13 => number % 5000,
            14 => number,
            _ => (1 << 16) + number * 16 % (1 << 20),
        }
    }
}

/// Decodes `bytes` into steps.
pub fn decode(bytes: &[u8]) -> Vec<Step> {
    let mut bytes = Bytes(bytes.iter());
    let mut steps = Vec::new();
    while !bytes.0.as_slice().is_empty() {
        steps.push(match bytes.next() % 32 {
            0..=8 => Step::Write {
                position: bytes.position(),
                length: bytes.length(),
                seed: if bytes.next() % 4 == 0 { bytes.next() } else { 0 },
                overlap: match bytes.next() % 8 {
                    0..=3 => Overlap::Agree,
                    4 => Overlap::Replace,
                    5 | 6 => Overlap::Keep,
                    _ => Overlap::KeepFirst,
                },
            },
            9..=13 => Step::Scatter {
                position: bytes.position(),
                length: 1 + usize::from(bytes.next() % 40),
                count: usize::from(bytes.next()) * 20,
                apart: 1 + u64::from(bytes.next() % 50),
                backwards: bytes.next() % 2 == 0,
            },
            14..=18 => Step::Read { position: bytes.position(), length: bytes.length() },
            19 | 20 => Step::Need {
                position: bytes.position(),
                length: bytes.length() as u64,
                greedy: bytes.number(),
            },
            21 | 22 => {
                let count = bytes.next() % 8;
                let mut span = || Span::new(bytes.position(), bytes.length() as u64);
                Step::NeedMany { spans: (0..count).map(|_| span()).collect(), greedy: bytes.number() }
            }
            23..=26 => Step::Erase { position: bytes.position(), length: bytes.length() as u64 },
            27 | 28 => Step::EraseBlock { choice: bytes.number() as usize },
            29 => Step::Block { position: bytes.position() },
            30 => Step::EraseBlocks { choice: bytes.number() as usize },
            _ if bytes.next() % 4 == 0 => Step::Clear,
            _ => Step::Compact,
        });
    }
    steps
}

/// Returns the byte that belongs at a position. Another seed changes a few of them.
fn byte_at(position: u64, seed: u8) -> u8 {
    let byte = (position ^ position >> 8).wrapping_mul(31) as u8;
    if seed > 0 && position % 97 == u64::from(seed) % 97 { byte ^ seed } else { byte }
}

#[derive(Default)]
struct Model {
    pages: BTreeMap<u64, Vec<Option<u8>>>,
    held: u64,
}

impl Model {
    fn get(&self, position: u64) -> Option<u8> {
        *self.pages.get(&(position / PAGE))?.get((position % PAGE) as usize)?
    }

    fn set(&mut self, position: u64, byte: Option<u8>) {
        let page = self.pages.entry(position / PAGE).or_insert_with(|| vec![None; PAGE as usize]);
        let old = std::mem::replace(&mut page[(position % PAGE) as usize], byte);
        self.held = self.held + u64::from(byte.is_some()) - u64::from(old.is_some());
    }

    fn blocks(&self) -> Vec<Span> {
        let mut blocks: Vec<Span> = Vec::new();
        for (page, bytes) in &self.pages {
            for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| byte.is_some()) {
                let position = page * PAGE + at as u64;
                match blocks.last_mut() {
                    Some(last) if last.end() == position => last.length += 1,
                    _ => blocks.push(Span::new(position, 1)),
                }
            }
        }
        blocks
    }

    fn missing(&self, position: u64, end: u64) -> Vec<Span> {
        let mut missing: Vec<Span> = Vec::new();
        for position in (position..end).filter(|position| self.get(*position).is_none()) {
            match missing.last_mut() {
                Some(last) if last.end() == position => last.length += 1,
                _ => missing.push(Span::new(position, 1)),
            }
        }
        missing
    }

    /// Applies a write byte by byte, as the specification says.
    fn write(&mut self, position: u64, bytes: &[u8], overlap: Overlap) -> Result<(), Error> {
        if position.checked_add(bytes.len() as u64).is_none() {
            return Err(Error::TooFar { position, length: bytes.len() as u64 });
        }
        // `bytes` comes first in the zip: no position is computed after the last byte, as there may be none.
        let places = || bytes.iter().zip(position..);
        if overlap == Overlap::Agree {
            for (given, position) in places() {
                if let Some(held) = self.get(position).filter(|held| held != given) {
                    return Err(Error::Differs { position, held, given: *given });
                }
            }
        }
        let mut in_first = true;
        for (byte, position) in places() {
            let held = self.get(position);
            in_first &= held.is_some();
            match overlap {
                Overlap::Keep if held.is_some() => {}
                Overlap::KeepFirst if in_first => {}
                _ => self.set(position, Some(*byte)),
            }
        }
        Ok(())
    }
}

fn lengthened(mut spans: Vec<Span>, least: u64) -> Vec<Span> {
    let mut list: Vec<Span> = Vec::new();
    for span in spans.drain(..) {
        match list.last_mut() {
            Some(last) if span.position <= last.end() => {
                last.length = last.length.max(span.end().saturating_sub(last.position));
            }
            _ => list.push(Span::new(span.position, span.length.max(least).min(u64::MAX - span.position))),
        }
    }
    list
}

/// Applies all steps to a file and to the map, and compares them after each step.
pub fn run(steps: &[Step], touches: bool) {
    let options = Options { touches, clock: Clock::Exact, ..Options::default() };
    let file = SparseFile::with_options("file", 1.0, options);
    let mut model = Model::default();
    for step in steps {
        apply(&file, &mut model, step);
        assert_eq!(file.bytes(), model.held, "after {step:?}");
    }
    let blocks = model.blocks();
    assert_eq!(file.blocks(), blocks);
    assert_eq!(file.count_blocks(), blocks.len() as u64);
    assert_eq!(file.end(), blocks.last().map_or(0, Span::end));
    if touches {
        let mut starts: Vec<u64> = file.touches().iter().map(|(_, start)| *start).collect();
        starts.sort_unstable();
        assert_eq!(starts, blocks.iter().map(|block| block.position).collect::<Vec<_>>());
    }
    for block in blocks {
        let bytes = file.read_to_vec(block.position, block.length as usize).expect("a block is held");
        let same = bytes.iter().zip(block.position..).all(|(byte, at)| model.get(at) == Some(*byte));
        assert!(same, "the bytes of {block}");
    }
}

fn apply(file: &SparseFile, model: &mut Model, step: &Step) {
    match step {
        Step::Write { position, length, seed, overlap } => {
            let bytes: Vec<u8> =
                (0..*length as u64).map(|at| byte_at(position.wrapping_add(at), *seed)).collect();
            let expected = if *length == 0 { Ok(()) } else { model.write(*position, &bytes, *overlap) };
            assert_eq!(file.write_with(*position, &bytes, *overlap), expected, "{step:?}");
        }
        Step::Scatter { position, length, count, apart, backwards } => {
            for at in 0..*count as u64 {
                let at = if *backwards { *count as u64 - at } else { at };
                let position = position.wrapping_add(at * (*length as u64 + apart - 1));
                let bytes: Vec<u8> =
                    (0..*length as u64).map(|at| byte_at(position.wrapping_add(at), 0)).collect();
                let expected = model.write(position, &bytes, Overlap::Replace);
                assert_eq!(file.write_with(position, &bytes, Overlap::Replace), expected);
            }
        }
        Step::Read { position, length } => {
            let held = position
                .checked_add(*length as u64)
                .map(|end| (*position..end).map(|position| model.get(position)).collect::<Option<Vec<u8>>>());
            match (file.read_to_vec(*position, *length), held) {
                (Err(Error::TooFar { .. }), None) => {}
                (Ok(bytes), Some(Some(held))) => assert_eq!(bytes, held),
                (Err(Error::Missing { missing, .. }), Some(held)) if *length > 0 => {
                    assert_eq!(held, None);
                    assert_eq!(Some(&missing), model.missing(*position, position + *length as u64).first());
                }
                (Err(Error::Missing { .. }), Some(_)) => assert!(!file.has(*position, 0)),
                (result, _) => panic!("{step:?} gave {result:?}"),
            }
            let has = position.checked_add(*length as u64).is_some_and(|end| {
                *length > 0 && (*position..end).all(|position| model.get(position).is_some())
            });
            assert_eq!(file.has(*position, *length as u64) && *length > 0, has);
        }
        Step::Need { position, length, greedy } => {
            let mut expected = model.missing(*position, position.saturating_add(*length));
            if greedy > length {
                expected = lengthened(expected, *greedy);
            }
            assert_eq!(file.need(*position, *length, *greedy), expected, "{step:?}");
        }
        Step::NeedMany { spans, greedy } => {
            let mut sorted = spans.clone();
            sorted.sort();
            let missing = sorted.iter().flat_map(|span| model.missing(span.position, span.end())).collect();
            assert_eq!(file.need_many(spans, *greedy), lengthened(missing, *greedy), "{step:?}");
            let plan = file.plan(spans, Merge { gap: *greedy, longest: 1000 });
            assert!(plan.windows(2).all(|pair| pair[0].end() <= pair[1].position), "{plan:?}");
            assert!(plan.iter().all(|span| (1..=1000).contains(&span.length)), "{plan:?}");
            let planned =
                |position: u64| plan.iter().any(|span| (span.position..span.end()).contains(&position));
            for span in sorted.iter().flat_map(|span| model.missing(span.position, span.end())) {
                assert!(planned(span.position) && planned(span.end() - 1), "{span} is not in {plan:?}");
            }
        }
        Step::Erase { position, length } => {
            let before = model.held;
            for position in *position..position.saturating_add(*length) {
                if model.get(position).is_some() {
                    model.set(position, None);
                }
            }
            assert_eq!(file.erase(*position, *length), before - model.held, "{step:?}");
        }
        Step::EraseBlocks { choice } => {
            // Every block, every second one, every third one, …
            let blocks: Vec<Span> = model.blocks().into_iter().step_by(1 + choice % 5).collect();
            let places = |block: &Span| block.position..block.end();
            blocks.iter().flat_map(places).for_each(|position| model.set(position, None));
            let bytes = blocks.iter().map(|block| block.length).sum::<u64>();
            assert_eq!(file.erase_blocks(&blocks), bytes, "{step:?}");
        }
        Step::EraseBlock { choice } => {
            let blocks = model.blocks();
            if let Some(block) = blocks.get(choice % blocks.len().max(1)) {
                assert_eq!(
                    file.erase_block(block.end()),
                    Err(Error::NotABlock { position: block.end() }),
                    "{step:?}"
                );
                (block.position..block.end()).for_each(|position| model.set(position, None));
                assert_eq!(file.erase_block(block.position), Ok(block.length), "{step:?}");
            }
        }
        Step::Block { position } => {
            let found =
                model.blocks().into_iter().find(|block| (block.position..block.end()).contains(position));
            assert_eq!(file.block_at(*position), found, "{step:?}");
        }
        Step::Compact => file.compact(),
        Step::Clear => {
            *model = Model::default();
            file.clear();
        }
    }
}
