//! Names that belong to others: pieces of other names, of former runs and of other programs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;

/// A step of the property test below.
#[derive(Debug, Clone)]
enum Step {
    /// Messages for the names with these indexes.
    Write(Vec<u8>),
    Save,
    /// All names are idle for longer than the time limit.
    Idle,
    /// As SIGHUP.
    Reopen,
    /// Another program creates a file, if none has this name: that of the piece of a name with a number.
    Take(u8, u8),
    Crash,
    Finish,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(0..4u8, 1..8).prop_map(Step::Write),
        2 => Just(Step::Save),
        2 => Just(Step::Idle),
        1 => Just(Step::Reopen),
        2 => (0..4u8, 0..4u8).prop_map(|(name, number)| Step::Take(name, number)),
        3 => Just(Step::Crash),
        1 => Just(Step::Finish),
    ]
}

const FORMATS: [&str; 7] = ["%d", "%Y", "%l%M", "%H%z", "%-d-%H", "%Y-%m-%d %Z", "%+"];

fn stamp(format: &str) -> String {
    chrono::Local::now().format(format).to_string()
}

/// Values of which each is the beginning of the names of the pieces of the one before.
fn keys(format: &str) -> [String; 4] {
    let stamp = stamp(format);
    ["a".to_owned(), format!("a-{stamp}"), format!("a-{stamp}-1"), "a-10".to_owned()]
}

/// The files, and the messages that were given to the sink.
struct World {
    folder: Folder,
    yaml: String,
    context: Context,
    keys: [String; 4],
    format: String,
    sent: Vec<u8>,
    /// The files of other programs.
    others: BTreeSet<String>,
    sink: Box<dyn Sink>,
}

impl World {
    async fn new(format: &str, rest: &str, context: &Context) -> Self {
        let folder = Folder::new();
        let yaml = format!(
            "{{ path: 'DIR/{{k}}.log', idle_timeout: 5ms, fsync: never, rotate: {{ size: 24B, timestamp: '{format}'{rest} }} }}"
        );
        let (sink, keys, others) = (folder.sink_in(&yaml, context), keys(format), BTreeSet::new());
        let (context, format) = (context.clone(), format.to_owned());
        let mut world = Self { folder, yaml, context, keys, format, sent: Vec::new(), others, sink };
        world.sink.open(None).await.unwrap();
        world
    }

    /// Writes messages with the numbers from `first` on.
    async fn write(&mut self, first: usize) {
        let key = |name: &u8| self.keys[usize::from(*name)].clone();
        let keys: Vec<String> = self.sent[first..].iter().map(key).collect();
        let texts: Vec<String> = (first..self.sent.len()).map(|number| format!("message {number}")).collect();
        let rows: Vec<(&str, &str)> =
            keys.iter().zip(&texts).map(|(key, text)| (key.as_str(), text.as_str())).collect();
        assert_eq!(write(&mut *self.sink, &keyed(&rows)).await, []);
    }

    fn take(&mut self, name: u8, number: u8) {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        let name = format!("{}-{}{number}.log", self.keys[usize::from(name)], stamp(&self.format));
        let is_free = ["", ".part", ".gz", ".gz.part", ".continued.part"]
            .iter()
            .all(|end| !self.folder.path(&format!("{name}{end}")).exists());
        if is_free {
            self.folder.put(&name, "of another program\n");
            self.others.insert(name);
        }
    }

    async fn restart(&mut self, state: Option<Value>) {
        // Dropped before the next one is built, as a process ends before the next one.
        self.sink = self.folder.sink("path: DIR/unused", false);
        self.sink = self.folder.sink_in(&self.yaml, &self.context);
        self.sink.open(state).await.unwrap();
    }

    /// Returns how often each message is in the files.
    fn found(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for (name, text) in self.folder.files() {
            if self.others.contains(&name) {
                assert_eq!(text, "of another program\n", "{name}");
                continue;
            }
            if fs::symlink_metadata(self.folder.path(&name)).unwrap().is_symlink() {
                continue;
            }
            assert!(!name.ends_with(".part"), "{name}");
            let how = if name.ends_with(".gz") { "gzip" } else { "none" };
            for line in decompressed(&self.folder.path(&name), how).lines() {
                *found.entry(line.to_owned()).or_default() += 1;
            }
        }
        for name in &self.others {
            assert!(self.folder.path(name).exists(), "{name} was removed");
        }
        found
    }

    fn expected(&self) -> BTreeMap<String, usize> {
        (0..self.sent.len()).map(|number| (format!("message {number}"), 1)).collect()
    }

    async fn run(&mut self, steps: Vec<Step>, resends: bool) {
        let mut saved = (None, 0);
        for step in steps {
            match step {
                Step::Write(names) => {
                    let first = self.sent.len();
                    self.sent.extend(names);
                    self.write(first).await;
                }
                Step::Save => saved = (self.sink.state(), self.sent.len()),
                Step::Idle => tokio::time::sleep(std::time::Duration::from_millis(25)).await,
                Step::Reopen => self.sink.reopen().await.unwrap(),
                Step::Take(name, number) => self.take(name, number),
                Step::Crash => {
                    self.restart(saved.0.clone()).await;
                    if resends && self.sent.len() > saved.1 {
                        self.write(saved.1).await;
                    }
                }
                Step::Finish => {
                    self.sink.finish().await.unwrap();
                    saved = (self.sink.state(), self.sent.len());
                    self.restart(saved.0.clone()).await;
                }
            }
        }
        self.sink.finish().await.unwrap();
    }
}

const STYLES: [&str; 4] = [
    ", numbers: if_taken",
    ", numbers: if_taken, compression: gzip",
    ", numbers: always, digits: 1",
    ", numbers: if_taken, digits: 2, link: '{stem}_current{extension}'",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Runs that keep checkpoints. Names are the beginnings of each other, time stamps may have several
    /// forms, and other programs take names.
    #[test]
    fn every_message_is_there_once_and_the_files_of_others_stay(
        steps in prop::collection::vec(step(), 1..25),
        format in prop::sample::select(FORMATS.to_vec()),
        style in prop::sample::select(STYLES.to_vec()),
        resends: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_store, context) = with_journal();
            let mut world = World::new(format, style, &Context { resends, ..context }).await;
            world.run(steps, resends).await;
            prop_assert_eq!(world.found(), world.expected());
            Ok(())
        })?;
    }

    /// Jobs without a state. The second one replaces the files of its names, and no other ones.
    #[test]
    fn a_job_replaces_the_pieces_of_its_own_names_only(
        first in prop::collection::vec(0..4u8, 1..40),
        second in prop::collection::vec(0..4u8, 1..40),
        pause in 0..40usize,
        format in prop::sample::select(FORMATS.to_vec()),
        style in prop::sample::select(STYLES.to_vec()),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(format, style, &context()).await;
            world.sent = first.clone();
            world.write(0).await;
            world.sink.finish().await.unwrap();
            world.restart(None).await;
            world.sent.extend(&second);
            let from = first.len() + pause.min(second.len() - 1);
            let later = world.sent.split_off(from);
            if from > first.len() {
                world.write(first.len()).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
            world.sent.extend(later);
            world.write(from).await;
            world.sink.finish().await.unwrap();
            let mut expected = world.expected();
            for (number, name) in first.iter().enumerate() {
                if second.contains(name) {
                    expected.remove(&format!("message {number}"));
                }
            }
            prop_assert_eq!(world.found(), expected);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn the_highest_number_is_not_used_and_the_error_says_what_to_do() {
    for (numbers, last) in [("if_taken", 4_294_967_293_u64), ("always", 4_294_967_293)] {
        let folder = Folder::new();
        let stray = format!("o-2026-{last}.log").replace("2026", &stamp("%Y"));
        folder.put(&stray, "of another program\n");
        let yaml = format!(
            "{{ path: DIR/o.log, existing: append, rotate: {{ size: 2B, timestamp: '%Y', numbers: {numbers} }} }}"
        );
        let mut sink = folder.sink(&yaml, false);
        sink.open(None).await.unwrap();
        let error = sink.write(&batch(["1", "2", "3"]), &mut Rejects::default()).await.unwrap_err().full();
        assert!(error.contains("no number is left for another piece: the names from `"), "{error}");
        drop(sink);
        assert_eq!(fs::read_to_string(folder.path(&stray)).unwrap(), "of another program\n");
    }
}

#[tokio::test]
async fn a_file_that_takes_the_name_of_an_unfinished_piece_stays() {
    for (yaml, expected) in [
        ("{ path: DIR/o, rotate: { size: 9B } }", "o-00002"),
        ("{ path: DIR/o, existing: append, rotate: { size: 9B } }", "o-00002"),
        ("{ path: DIR/o, existing: rename }", "o-00002"),
    ] {
        let folder = Folder::new();
        folder.put("o", "old\n");
        let mut sink = folder.sink(yaml, false);
        sink.open(None).await.unwrap();
        write(&mut *sink, &batch(["1"])).await;
        assert!(folder.path("o-00001.part").exists());
        folder.put("o-00001", "of another program\n");
        sink.finish().await.unwrap();
        let expected = files([("o", "old\n"), ("o-00001", "of another program\n"), (expected, "1\n")]);
        assert_eq!(folder.files(), expected, "{yaml}");
    }
}

#[tokio::test]
async fn names_that_look_like_numbered_ones_are_files_of_their_own() {
    for rows in [[("a", "1"), ("a-00001", "2")], [("a-00001", "2"), ("a", "1")]] {
        let folder = Folder::new();
        folder.put("a", "old\n");
        let yaml = folder.yaml("{ path: 'DIR/{k}', existing: rename }");
        assert_eq!(write_all::<FileConfig>(&yaml, [keyed(&rows)]).await.unwrap(), []);
        let mut texts: Vec<String> = folder.files().into_iter().map(|(_, text)| text).collect();
        texts.sort();
        assert_eq!(texts, ["1\n", "2\n", "old\n"], "{:?}", folder.files());
    }
}

/// Returns the messages in the files but `other`, sorted.
fn own_messages(folder: &Folder, other: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, _) in folder.files().into_iter().filter(|(name, _)| name != other) {
        let how = if name.ends_with(".gz") { "gzip" } else { "none" };
        lines.extend(decompressed(&folder.path(&name), how).lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

/// Runs of one file of which the first is killed, and the second as well. Another program creates the file
/// `other` while the first piece is written, or after the first run has finished its pieces. The state is
/// that of the first message, or none.
async fn killed_twice(rest: &str, other: &str, has_state: bool, is_late: bool) -> Folder {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let yaml = format!("{{ path: DIR/o, rotate: {{ size: 4B{rest} }} }}");
    let mut sink = folder.sink_in(&yaml, &context);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["1"])).await;
    let saved = sink.state().filter(|_| has_state);
    if !is_late {
        folder.put(other, "of another program\n");
    }
    write(&mut *sink, &batch(["2"])).await;
    write(&mut *sink, &batch(["3"])).await;
    sink.finish().await.unwrap();
    drop(sink);
    if is_late {
        folder.put(other, "of another program\n");
    }
    for is_last in [false, true] {
        let mut sink = folder.sink_in(&yaml, &context);
        sink.open(saved.clone()).await.unwrap();
        if !has_state {
            write(&mut *sink, &batch(["1"])).await;
        }
        write(&mut *sink, &batch(["2"])).await;
        write(&mut *sink, &batch(["3"])).await;
        if is_last {
            sink.finish().await.unwrap();
        }
    }
    folder
}

#[tokio::test]
async fn a_piece_that_got_another_number_is_continued_after_a_kill() {
    for rest in ["", ", compression: gzip", ", timestamp: '%Y'", ", timestamp: '%Y', numbers: if_taken"] {
        let stamp = if rest.contains("timestamp") { format!("-{}", stamp("%Y")) } else { String::new() };
        let number = if rest.contains("if_taken") { "" } else { "-00001" };
        let other = format!("o{stamp}{number}");
        let folder = killed_twice(rest, &other, true, false).await;
        let at = format!("{rest}: {:?}", folder.files());
        assert_eq!(fs::read_to_string(folder.path(&other)).unwrap(), "of another program\n", "{at}");
        assert_eq!(own_messages(&folder, &other), ["1", "2", "3"], "{at}");
    }
}

#[tokio::test]
async fn a_file_with_a_name_that_was_noted_stays_when_a_killed_run_resumes() {
    for (rest, other, is_late) in [
        ("", "o-00001", false),
        (", compression: gzip", "o-00001", false),
        (", compression: gzip", "o-00001", true),
        (", compression: gzip", "o-00001.gz", false),
        (", compression: gzip", "o-00002.gz", false),
    ] {
        for has_state in [false, true] {
            let folder = killed_twice(rest, other, has_state, is_late).await;
            let at = format!("{rest} {other} {has_state} {is_late}: {:?}", folder.files());
            assert_eq!(fs::read_to_string(folder.path(other)).unwrap(), "of another program\n", "{at}");
            assert_eq!(own_messages(&folder, other), ["1", "2", "3"], "{at}");
        }
    }
}
