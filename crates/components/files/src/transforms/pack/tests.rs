use std::collections::BTreeMap;
use std::io::Read;

use super::growing::IN_MEMORY;
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use proptest::prelude::*;
use thalweg_codec::decompress::{Decoder, Format};
use thalweg_engine::testing::{batch, context, messages, options};
use thalweg_record::{Content, Settlement};

use crate::content::open;

fn read(file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    open(file).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, file.size());
    bytes
}

fn pack(yaml: &str, batches: impl IntoIterator<Item = Batch>) -> Vec<File> {
    let mut packing = options::<Pack>(yaml).build(&context()).unwrap();
    let mut out = Outputs::new("test".into());
    for batch in batches {
        packing.apply(batch, &mut out).unwrap();
    }
    packing.finish(&mut out).unwrap();
    assert!(out.take().is_empty());
    out.take_files()
}

fn texts(files: &[File]) -> Vec<(String, String)> {
    let name = |file: &File| file.name().to_string_lossy().into_owned();
    files.iter().map(|file| (name(file), String::from_utf8(read(file)).unwrap())).collect()
}

#[test]
fn files_are_finished_when_they_are_full() {
    let files = pack(
        "{ name: 'p{number}', max_file_bytes: 6B }",
        [batch(["ab", "c", "d"]), batch(["long line", "e"])],
    );
    let expected = [("p1", "ab\nc\n"), ("p2", "d\n"), ("p3", "long line\n"), ("p4", "e\n")];
    assert_eq!(texts(&files), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let files = pack("{ name: 'p{number:2}', max_count: 2, delimiter: ';' }", [batch(["a", "b", "c"])]);
    let expected = [("p01", "a;b;"), ("p02", "c;")];
    assert_eq!(texts(&files), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    assert_eq!(files[0].origin().name, "p01");
    assert!(pack("{ name: p }", []).is_empty());
}

#[test]
fn each_file_of_csv_has_its_header() {
    let batch = batch(["x", "y"]);
    let yaml = "{ name: p, max_count: 1, encode: { format: csv, fields: [payload] } }";
    let texts: Vec<String> = texts(&pack(yaml, [batch])).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["payload\nx\n", "payload\ny\n"]);
}

#[test]
fn small_contents_stay_in_memory_under_a_lease_and_large_ones_do_not() {
    let context = context();
    let mut packing = options::<Pack>("{ name: p, max_file_bytes: 3MiB }").build(&context).unwrap();
    let mut out = Outputs::new("test".into());
    packing.apply(batch([vec![b'x'; 100_000]]), &mut out).unwrap();
    packing.finish(&mut out).unwrap();
    let small = out.take_files().remove(0);
    assert!(matches!(small.content(), Content::Memory(_)));
    let budget = context.memory.budget().clone();
    assert!(budget.used() >= 100_000 + File::WEIGHT, "{}", budget.used());
    small.settle(Outcome::Delivered);
    for _ in 0..30 {
        packing.apply(batch([vec![b'y'; 100_000]]), &mut out).unwrap();
        assert!(budget.used() <= 2 * IN_MEMORY);
    }
    packing.finish(&mut out).unwrap();
    let large = out.take_files().remove(0);
    assert!(matches!(large.content(), Content::Temporary(_)));
    assert_eq!(read(&large).len(), 30 * 100_001);
    large.settle(Outcome::Delivered);
    drop((packing, out));
    assert_eq!(budget.used(), 0);
}

#[test]
fn compressed_files_hold_the_messages() {
    let lines: Vec<String> = (0..10_000).map(|n| format!("line {n}")).collect();
    for (how, format) in [("gzip", Format::Gzip), ("zstd", Format::Zstd)] {
        let files =
            pack(&format!("{{ name: p, compression: {how}, compression_level: 1 }}"), [batch(&lines)]);
        let packed = read(&files[0]);
        let mut text = String::new();
        Decoder::new(format, &packed[..]).read_to_string(&mut text).unwrap();
        assert!(packed.len() < text.len() / 2);
        assert_eq!(text, lines.join("\n") + "\n");
    }
}

#[test]
fn the_memory_of_a_compressor_counts_on_the_budget_while_its_file_is_written() {
    let context = context();
    let budget = context.memory.budget();
    let yaml = "{ name: p, compression: zstd, compression_level: 9 }";
    let mut packing = options::<Pack>(yaml).build(&context).unwrap();
    let mut out = Outputs::new("test".into());
    packing.apply(batch(["a"]), &mut out).unwrap();
    let needed = Compression::Zstd.encoder_memory(Some(9));
    assert!(budget.used() >= needed, "{} of {needed}", budget.used());
    packing.finish(&mut out).unwrap();
    assert!(budget.used() < needed, "{}", budget.used());
}

#[test]
fn a_file_that_is_too_old_is_finished_by_the_next_message() {
    let yaml = "{ name: '{number}', max_age: 1ms }";
    let mut packing = options::<Pack>(yaml).build(&context()).unwrap();
    let mut out = Outputs::new("test".into());
    packing.apply(batch(["a"]), &mut out).unwrap();
    assert!(out.take_files().is_empty());
    std::thread::sleep(Duration::from_millis(2));
    packing.apply(batch(["b"]), &mut out).unwrap();
    assert_eq!(texts(&out.take_files()), [("1".to_owned(), "a\n".to_owned())]);
}

/// A source that waits for the acks of its messages sends no others until then.
#[test]
fn a_file_that_is_too_old_is_finished_while_no_message_comes() {
    let pack = options::<Pack>("{ name: '{number}', max_age: 1ms }");
    assert!(pack.ticks() && !options::<Pack>("{ name: p, max_count: 1 }").ticks());
    let mut packing = pack.build(&context()).unwrap();
    let mut out = Outputs::new("test".into());
    assert_eq!(packing.due(), None);
    packing.apply(batch(["a"]), &mut out).unwrap();
    let due = packing.due().unwrap();
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    packing.tick(&mut out).unwrap();
    assert_eq!(texts(&out.take_files()), [("1".to_owned(), "a\n".to_owned())]);
    assert_eq!(packing.due(), None);
    let mut young = options::<Pack>("{ name: p, max_age: 1h }").build(&context()).unwrap();
    young.apply(batch(["a"]), &mut out).unwrap();
    young.tick(&mut out).unwrap();
    assert!(out.take_files().is_empty() && young.due().is_some());
}

/// Without a checkpoint, a later run would continue the file, and send it again.
#[test]
fn a_checkpoint_follows_a_finished_file_that_the_last_one_has() {
    let state = tempfile::tempdir().unwrap();
    let store = thalweg_engine::Store::open(state.path()).unwrap();
    let journal = Some(thalweg_engine::Journal::new(Arc::new(store), "pack"));
    let context = thalweg_engine::Context { resumes: true, resends: true, journal, ..context() };
    let mut packing = options::<Pack>("{ name: p, max_age: 1ms }").build(&context).unwrap();
    let mut out = Outputs::new("test".into());
    packing.apply(batch(["a"]), &mut out).unwrap();
    packing.pre_commit().unwrap();
    assert!(!packing.has_news());
    std::thread::sleep(Duration::from_millis(2));
    packing.tick(&mut out).unwrap();
    assert_eq!(out.take_files().len(), 1);
    assert!(packing.has_news());
    packing.pre_commit().unwrap();
    assert!(!packing.has_news());
    assert_eq!(packing.state(), Some(serde_json::json!({ "next": 2, "file": null })));
}

#[test]
fn options_that_make_no_sense_are_mistakes() {
    let count = |yaml: &str| messages(options::<Pack>(yaml).check());
    assert_eq!(count("{ name: p }"), [""; 0]);
    assert_eq!(
        count("{ name: p, max_file_bytes: 0B, max_age: 0s }"),
        ["The size of a file cannot be 0.", "`max_age` cannot be 0."]
    );
    assert_eq!(
        count("{ name: p, compression_level: 3 }"),
        ["There is a `compression_level`, but no `compression`."]
    );
    assert_eq!(
        count("{ name: p, compression: gzip, compression_level: 10 }"),
        ["`compression_level` is 10, but it must be 0 to 9."]
    );
    assert_eq!(count("{ name: p, encode: { format: text } }"), ["`text` needs a template."]);
}

#[test]
fn a_later_run_continues_the_count_and_gives_the_number_of_an_unfinished_file_again() {
    let packing = || options::<Pack>("{ name: 'p{number}', max_count: 2 }").build(&context()).unwrap();
    let mut out = Outputs::new("test".into());
    let mut first = packing();
    assert_eq!(first.state(), Some(serde_json::json!({ "next": 1, "file": null })));
    first.apply(batch(["a", "b", "c"]), &mut out).unwrap();
    // The second file has "c" and is not finished.
    let saved = first.state().unwrap();
    assert_eq!((&saved, first.state()), (&serde_json::json!({ "next": 2, "file": null }), None));
    let mut second = packing();
    second.restore(saved).unwrap();
    second.apply(batch(["c", "d", "e"]), &mut out).unwrap();
    second.finish(&mut out).unwrap();
    let expected = [("p1", "a\nb\n"), ("p2", "c\nd\n"), ("p3", "e\n")];
    assert_eq!(texts(&out.take_files()), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    assert_eq!(second.state(), Some(serde_json::json!({ "next": 4, "file": null })));
    assert!(packing().restore("x".into()).is_err());
}

proptest! {
    #[test]
    fn all_messages_come_out_in_order_and_each_batch_is_answered_once_when_its_files_are(
        batches in prop::collection::vec(prop::collection::vec("[a-z]{0,20}", 1..8), 0..12),
        max_file_bytes in 1..60usize,
        max_count in 1..10usize,
        failing in any::<prop::sample::Index>(),
        backwards in any::<bool>(),
    ) {
        let answers: Arc<Mutex<BTreeMap<usize, Vec<Settlement>>>> = Arc::default();
        let given = batches.iter().enumerate().map(|(number, messages)| {
            let answers = answers.clone();
            let mut batch = batch(messages);
            batch.ack_mut().merge(Ack::new("test".into(), move |settlement| {
                answers.lock().entry(number).or_default().push(settlement);
            }));
            batch
        });
        let yaml = format!("{{ name: '{{number}}', max_file_bytes: {max_file_bytes}B, max_count: {max_count} }}");
        let mut files = pack(&yaml, given);
        let texts = texts(&files);
        let lines: Vec<&str> = texts.iter().flat_map(|(_, text)| text.lines()).collect();
        let all: Vec<&String> = batches.iter().flatten().collect();
        prop_assert_eq!(&lines, &all);
        // The files that contain each batch.
        let mut file_of = Vec::new();
        for (number, (name, text)) in texts.iter().enumerate() {
            let count = text.lines().count();
            prop_assert_eq!(name, &(number + 1).to_string());
            prop_assert!(count > 0 && count <= max_count && (text.len() <= max_file_bytes || count == 1));
            file_of.extend(std::iter::repeat_n(number, count));
        }
        let mut ends = Vec::new();
        let mut row = 0;
        for messages in &batches {
            ends.push(file_of[row..row + messages.len()].to_vec());
            row += messages.len();
        }
        let failing = if files.is_empty() { 0 } else { failing.index(files.len()) };
        let mut numbers: Vec<usize> = (0..files.len()).collect();
        if backwards {
            numbers.reverse();
            files.reverse();
        }
        prop_assert!(answers.lock().is_empty());
        let mut settled = Vec::new();
        for (number, file) in numbers.into_iter().zip(files) {
            file.settle(if number == failing { Outcome::Failed } else { Outcome::Delivered });
            settled.push(number);
            for (batch, files) in ends.iter().enumerate() {
                let is_over = files.iter().all(|file| settled.contains(file));
                let answers = answers.lock();
                let answered = answers.get(&batch).map_or(&[][..], Vec::as_slice);
                prop_assert_eq!(answered.len(), usize::from(is_over));
                if let [answer] = answered {
                    prop_assert_eq!(answer.outcome == Outcome::Failed, files.contains(&failing));
                }
            }
        }
    }
}

#[test]
fn only_files_that_are_always_built_again_have_keys() {
    for (resumes, resends, starts_over, expected) in [
        (true, true, true, Some("1")),
        (false, true, true, None),
        (true, false, true, None),
        (true, true, false, None),
    ] {
        let context = thalweg_engine::Context { resumes, resends, starts_over, ..context() };
        let mut packing = options::<Pack>("{ name: p }").build(&context).unwrap();
        let mut out = Outputs::new("test".into());
        packing.apply(batch(["a"]), &mut out).unwrap();
        packing.finish(&mut out).unwrap();
        assert_eq!(out.take_files()[0].origin().key.as_deref(), expected);
    }
}

/// Returns the name and the text of a file that is compressed with `format`.
fn unpacked(file: &File, format: Option<Format>) -> (String, String) {
    let (bytes, mut text) = (read(file), String::new());
    match format {
        Some(format) => Decoder::new(format, &bytes[..]).read_to_string(&mut text).unwrap(),
        None => (&bytes[..]).read_to_string(&mut text).unwrap(),
    };
    (file.name().to_string_lossy().into_owned(), text)
}

/// A run that is killed: the number of batches between checkpoints, and the number of all batches.
type Killed = (usize, usize);

/// Packs batches in runs with one state, of which the last one ends. Returns the texts of the files by name:
/// a file that is built again replaces the one before. Checks that a checkpoint settles all batches so far.
fn pack_killed(
    yaml: &str,
    format: Option<Format>,
    batches: &[Vec<String>],
    kills: &[Killed],
) -> BTreeMap<String, String> {
    let state = tempfile::tempdir().unwrap();
    let store = thalweg_engine::Store::open(state.path()).unwrap();
    let journal = Some(thalweg_engine::Journal::new(Arc::new(store), "pack"));
    let context = thalweg_engine::Context { resumes: true, resends: true, journal, ..context() };
    let (mut files, mut saved, mut covered) = (BTreeMap::new(), None, 0);
    for &(between, length) in kills.iter().chain([&(3, usize::MAX)]) {
        let (settled, begun) = (Arc::new(AtomicUsize::new(0)), covered);
        let mut packing = options::<Pack>(yaml).build(&context).unwrap();
        saved.iter().for_each(|saved: &Value| packing.restore(saved.clone()).unwrap());
        let mut out = Outputs::new("test".into());
        let mut deliver = |out: &mut Outputs| {
            for file in out.take_files() {
                files.extend([unpacked(&file, format)]);
                file.settle(Outcome::Delivered);
            }
        };
        for (number, messages) in batches.iter().enumerate().skip(begun).take(length) {
            let (mut batch, count) = (batch(messages), settled.clone());
            batch.ack_mut().merge(Ack::new("test".into(), move |settlement: Settlement| {
                // Messages that a killed run holds fail.
                count.fetch_add(usize::from(settlement.outcome == Outcome::Delivered), Relaxed);
            }));
            packing.apply(batch, &mut out).unwrap();
            deliver(&mut out);
            if number % (between + 1) == 0 {
                packing.pre_commit().unwrap();
                saved = packing.state().or(saved);
                covered = number + 1;
                assert_eq!(settled.load(Relaxed), covered - begun);
            }
        }
        if length == usize::MAX {
            packing.finish(&mut out).unwrap();
            deliver(&mut out);
        }
    }
    files
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn an_unfinished_file_of_a_killed_run_is_continued_with_what_no_checkpoint_has(
        batches in prop::collection::vec(prop::collection::vec("[a-z]{0,20}", 1..8), 1..20),
        max_count in 1..20usize,
        kills in prop::collection::vec((0..4usize, 0..8usize), 0..5),
        (name, format) in prop::sample::select(vec![
            ("none", None), ("gzip", Some(Format::Gzip)), ("zstd", Some(Format::Zstd)),
        ]),
    ) {
        let yaml = format!("{{ name: '{{number:4}}', max_count: {max_count}, compression: {name} }}");
        let files = pack_killed(&yaml, format, &batches, &kills);
        let messages = batches.concat();
        let chunks = messages.chunks(max_count);
        let expected = chunks.map(|lines| lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        prop_assert_eq!(files.into_values().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_file_too_large_for_memory_is_continued() {
    let batches: Vec<Vec<String>> = (0..8).map(|n| vec![n.to_string().repeat(300_000)]).collect();
    let files = pack_killed("{ name: all }", None, &batches, &[(0, 6), (0, 1)]);
    let text: String = batches.concat().iter().map(|line| format!("{line}\n")).collect();
    assert!(files["all"] == text);
}

#[test]
fn bytes_that_a_killed_run_kept_after_its_last_checkpoint_are_removed() {
    let state = tempfile::tempdir().unwrap();
    let store = thalweg_engine::Store::open(state.path()).unwrap();
    let journal = thalweg_engine::Journal::new(Arc::new(store), "pack");
    let kept = Some(journal.clone());
    let context = thalweg_engine::Context { resumes: true, resends: true, journal: kept, ..context() };
    let build = || options::<Pack>("{ name: '{number}', max_count: 2 }").build(&context).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|letter| letter.repeat(100_000));
    let (mut first, mut out) = (build(), Outputs::new("test".into()));
    first.apply(batch([&a]), &mut out).unwrap();
    first.pre_commit().unwrap();
    let saved = first.state().unwrap();
    first.apply(batch([&b, &c]), &mut out).unwrap();
    first.pre_commit().unwrap();
    assert_eq!(journal.count_outputs().unwrap(), 2);
    drop(first);
    out.take_files().into_iter().for_each(|file| file.settle(Outcome::Failed));
    let mut second = build();
    second.restore(saved).unwrap();
    assert_eq!(journal.count_outputs().unwrap(), 1);
    let entries = journal.names("").unwrap();
    assert!(entries.iter().all(|name| name.starts_with("unfinished/file/1/")), "{entries:?}");
    second.apply(batch([&b]), &mut out).unwrap();
    assert_eq!(texts(&out.take_files()), [("1".to_owned(), format!("{a}\n{b}\n"))]);
}

/// All messages of the file are settled by a checkpoint, so no position shows that the file failed.
#[test]
fn a_file_that_fails_after_a_checkpoint_has_its_messages_is_not_finished() {
    let state = tempfile::tempdir().unwrap();
    let store = thalweg_engine::Store::open(state.path()).unwrap();
    let journal = Some(thalweg_engine::Journal::new(Arc::new(store), "pack"));
    let context = thalweg_engine::Context { resumes: true, resends: true, journal, ..context() };
    let (mut saved, mut out) = (None::<Value>, Outputs::new("test".into()));
    for (outcome, has_failed) in
        [(Outcome::Failed, true), (Outcome::Unfinished, true), (Outcome::Rejected, false)]
    {
        let mut packing = options::<Pack>("{ name: p }").build(&context).unwrap();
        match saved.clone() {
            None => packing.apply(batch(["a"]), &mut out).unwrap(),
            Some(saved) => packing.restore(saved).unwrap(),
        }
        packing.pre_commit().unwrap();
        saved = packing.state().or(saved);
        packing.pre_commit().unwrap();
        assert!(!packing.is_delivering());
        packing.finish(&mut out).unwrap();
        assert!(packing.is_delivering() && !packing.has_failed());
        let files = out.take_files();
        assert_eq!(texts(&files), [("p".to_owned(), "a\n".to_owned())]);
        files.into_iter().for_each(|file| file.settle(outcome));
        assert_eq!((packing.is_delivering(), packing.has_failed()), (false, has_failed), "{outcome:?}");
    }
}

#[test]
fn an_unfinished_file_is_not_continued_with_another_compression() {
    let state = tempfile::tempdir().unwrap();
    let store = thalweg_engine::Store::open(state.path()).unwrap();
    let journal = Some(thalweg_engine::Journal::new(Arc::new(store), "pack"));
    let context = thalweg_engine::Context { resumes: true, resends: true, journal, ..context() };
    let build = |yaml: &str| options::<Pack>(yaml).build(&context).unwrap();
    let (mut first, mut out) = (build("{ name: p }"), Outputs::new("test".into()));
    first.apply(batch(["a"]), &mut out).unwrap();
    first.pre_commit().unwrap();
    let saved = first.state().unwrap();
    let error = build("{ name: p, compression: gzip }").restore(saved).unwrap_err().to_string();
    assert!(
        error.starts_with("an earlier run left an unfinished file with another `compression`."),
        "{error}"
    );
}
