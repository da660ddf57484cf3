use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use thalweg_engine::testing::{Arrived, Sent, messages, options, payloads, start};

use super::*;

/// A timeout far longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a program that stands for `journalctl`. It writes the entries of the file `journal` from the
/// cursor on, and its arguments to `calls`.
struct Journal(TempDir);

impl Journal {
    fn with(entries: &[&str]) -> Self {
        let journal = Self(tempfile::tempdir().unwrap());
        let folder = journal.0.path().display();
        let script = format!(
            "echo \"$*\" >> '{folder}/calls'; cursor=\n\
             for argument; do case $argument in --cursor=*) cursor=${{argument#--cursor=}};; esac; done\n\
             awk -v cursor=\"$cursor\" 'BEGIN {{ RS = \"\"; ORS = \"\\n\\n\" }}\n\
             cursor == \"\" || seen || index($0, \"__CURSOR=\" cursor \"\\n\") == 1 {{ seen = 1; print }}' '{folder}/journal'"
        );
        journal.script(&script);
        journal.write(entries);
        journal
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn script(&self, script: &str) {
        let path = self.path("journalctl");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn write(&self, entries: &[&str]) {
        fs::write(
            self.path("journal"),
            entries.iter().map(|entry| format!("{entry}\n\n")).collect::<String>(),
        )
        .unwrap();
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn yaml(&self, options: &str) -> String {
        format!("{{ program: '{}', {options} }}", self.path("journalctl").display())
    }

    /// Reads to the end, from a saved cursor if there is one.
    async fn sent(&self, options: &str, saved: Option<&str>) -> Sent {
        let saved: BTreeMap<String, Value> =
            saved.map(|cursor| (PARTITION.to_owned(), json!(cursor))).into_iter().collect();
        let running = start::<JournaldSource>(&self.yaml(options), 1 << 20, saved);
        tokio::time::timeout(PATIENCE, running.finish()).await.unwrap()
    }
}

const ENTRIES: [&str; 3] = [
    "__CURSOR=a\n_SYSTEMD_UNIT=one.service\nMESSAGE=first",
    "__CURSOR=b\n_SYSTEMD_UNIT=two.service\nMESSAGE=second",
    "__CURSOR=c\nMESSAGE=third",
];

#[tokio::test]
async fn each_entry_is_a_message() {
    let journal = Journal::with(&ENTRIES);
    let sent = journal.sent("follow: false", None).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!(sent.payloads(), ENTRIES);
    assert_eq!(journal.calls(), ["--output=export --quiet --no-pager --boot"]);
}

#[tokio::test]
async fn a_run_continues_behind_the_saved_cursor() {
    let journal = Journal::with(&ENTRIES);
    for (cursor, expected) in [("a", &ENTRIES[1..]), ("b", &ENTRIES[2..]), ("c", &[])] {
        assert_eq!(journal.sent("follow: false, since: yesterday", Some(cursor)).await.payloads(), expected);
    }
    // Neither the boot nor the time hide what came after the cursor.
    assert_eq!(journal.calls()[0], "--output=export --quiet --no-pager --cursor=a");
    // The entry was deleted: `journalctl` begins with the one behind it.
    journal.script(&format!("cat '{}'", journal.path("journal").display()));
    assert_eq!(journal.sent("follow: false", Some("0")).await.payloads(), ENTRIES);
}

#[tokio::test]
async fn units_are_left_out_and_others_stay() {
    let journal = Journal::with(&ENTRIES);
    let sent = journal.sent("follow: false, exclude_units: [one, two.service]", None).await;
    assert_eq!(sent.payloads(), [ENTRIES[2]]);
}

#[tokio::test]
async fn options_become_arguments() {
    let journal = Journal::with(&[]);
    let yaml = "units: [a, 'b*'], identifiers: sudo, priority: 0..warning, directory: /j, since: -1h, \
                current_boot_only: false, matches: { _UID: ['0', '1'], _TRANSPORT: kernel }, follow: false";
    journal.sent(yaml, None).await;
    assert_eq!(
        journal.calls(),
        [
            "--directory=/j --output=export --quiet --no-pager --since=-1h --unit=a --unit=b* --identifier=sudo \
          --priority=0..warning _TRANSPORT=kernel _UID=0 _UID=1"
        ]
    );
}

#[tokio::test]
async fn a_program_that_ends_is_started_again_behind_its_last_entry() {
    let journal = Journal::with(&ENTRIES[..2]);
    let running = start::<JournaldSource>(&journal.yaml("restart_delay: 10ms"), 1 << 20, BTreeMap::new());
    let mut found = Vec::new();
    while found.len() < 3 {
        let taken = tokio::time::timeout(PATIENCE, running.main.take()).await.unwrap();
        let Some((_, Arrived::Messages(batch))) = taken else { panic!("it ended") };
        found.extend(payloads(&batch));
        journal.write(&ENTRIES);
    }
    assert_eq!(found, ENTRIES);
    running.stop.request();
    let sent = tokio::time::timeout(PATIENCE, running.finish()).await.unwrap();
    assert!(sent.result.is_none() && sent.main.is_empty());
    let calls = journal.calls();
    assert_eq!(calls[0], "--output=export --quiet --no-pager --follow --no-tail --boot");
    assert_eq!(calls[1], "--output=export --quiet --no-pager --follow --no-tail --cursor=b");
}

#[tokio::test]
async fn a_failure_before_the_first_entry_ends_the_run() {
    let journal = Journal::with(&[]);
    journal.script("exit 1");
    let failed = journal.sent("restart_delay: 10ms", None).await.result.unwrap();
    assert!(failed.full().ends_with("journalctl` ended with exit code 1"), "{}", failed.full());
    let yaml = "{ program: thalweg-no-such-program }";
    let missing = start::<JournaldSource>(yaml, 1 << 20, BTreeMap::new()).finish().await.result.unwrap();
    assert!(missing.full().contains("was not found in any folder of `PATH`"), "{}", missing.full());
}

#[tokio::test]
async fn values_of_bytes_are_part_of_their_entry_and_what_is_too_long_is_rejected() {
    let journal = Journal::with(&[]);
    let entry = |cursor: &str, value: &[u8]| {
        let length = (value.len() as u64).to_le_bytes();
        [format!("__CURSOR={cursor}\nMESSAGE\n").as_bytes(), &length, value, b"\n"].concat()
    };
    let (first, long) = (entry("a", b"one\n\ntwo"), entry("b", &[b'x'; 10_000]));
    fs::write(
        journal.path("journal"),
        [&first[..], b"\n", &long, b"\n__CURSOR=c\nMESSAGE=last\n\n"].concat(),
    )
    .unwrap();
    journal.script(&format!("cat '{}'", journal.path("journal").display()));
    let sent = journal.sent("follow: false, max_message_bytes: 5000", None).await;
    assert_eq!(sent.main[0].payload().value(0), &first[..first.len() - 1]);
    assert_eq!(sent.payloads()[1..], ["__CURSOR=c\nMESSAGE=last"]);
    assert_eq!(sent.errors[0].payload().value(0), &long[..4096]);
    journal.script("printf 'MESSAGE\\n\\001\\0\\0\\0\\0\\0\\0\\0abc\\n\\n'");
    let failed = journal.sent("follow: false", None).await.result.unwrap();
    assert!(
        failed.full().ends_with("wrote an entry that has a field whose length is wrong"),
        "{}",
        failed.full()
    );
}

/// The program that writes the system's journal, if it is installed.
const JOURNALD: &str = "/lib/systemd/systemd-journald";

/// The real programs: `systemd-journald` writes a journal in a mount namespace of its own, and `journalctl`
/// reads it. This needs the rights to mount. Where it is not possible, the fake program is all that is
/// tested.
#[tokio::test]
async fn the_real_journal_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some(journal) = real_journal(folder.path()) else {
        println!("there is no `{JOURNALD}`, or it cannot run here");
        return;
    };
    let yaml = format!("{{ directory: '{}', identifiers: thalweg-test, follow: false }}", journal.display());
    let read = async |saved: BTreeMap<String, Value>| {
        let running = start::<JournaldSource>(&yaml, 1 << 20, saved);
        tokio::time::timeout(PATIENCE, running.finish()).await.unwrap()
    };
    let sent = read(BTreeMap::new()).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    let field = |entry: &str, name: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.map(str::to_owned)
    };
    let all = sent.payloads();
    let texts: Vec<_> = all.iter().map(|entry| field(entry, "MESSAGE").unwrap()).collect();
    assert_eq!(texts, ["line 1", "line 2", "line 3"]);
    let cursor = field(&all[0], "__CURSOR").unwrap();
    let rest = read([(PARTITION.to_owned(), json!(cursor))].into_iter().collect()).await;
    assert_eq!(rest.payloads(), all[1..]);
}

/// Writes a journal with three entries. Returns its folder, or `None` if that is not possible.
fn real_journal(folder: &Path) -> Option<PathBuf> {
    let script = "mount --make-rprivate / && mount -t tmpfs none /run && mount -t tmpfs none /var/log && \
                  mkdir -p /run/systemd/journal /run/log/journal || exit\n\
                  \"$1\" & daemon=$!\n\
                  for _ in $(seq 100); do [ -S /run/systemd/journal/stdout ] && break; sleep 0.1; done\n\
                  for number in 1 2 3; do echo \"line $number\" | systemd-cat -t thalweg-test; done\n\
                  for _ in $(seq 100); do journalctl -q -t thalweg-test -o cat | grep -q 'line 3' && break; sleep 0.1; done\n\
                  kill $daemon; wait $daemon; cp -r /run/log/journal/* \"$2\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", JOURNALD]).arg(folder);
    Path::new(JOURNALD).exists().then_some(())?;
    command.output().ok()?;
    let journals = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    journals.into_iter().find(|path| path.is_dir())
}

#[test]
fn what_journalctl_would_not_understand_is_refused() {
    let mistakes = |yaml: &str| messages(options::<JournaldSource>(yaml).check());
    assert_eq!(mistakes("{ priority: warning, matches: { _UID: '0' } }"), [""; 0]);
    assert_eq!(mistakes("{ priority: high }"), ["`high` is not a priority."]);
    assert_eq!(mistakes("{ priority: '1..2..3' }"), ["`1..2..3` is not a priority."]);
    assert_eq!(mistakes("{ matches: { --root: x } }"), ["`--root` cannot be a field of the journal."]);
    assert_eq!(
        mistakes("{ max_message_bytes: 0 }"),
        ["`max_message_bytes` is 0B, but must be between 1 and 1GiB."]
    );
}

#[test]
fn a_time_that_counts_from_now_counts_from_the_start_of_the_run() {
    let began = UNIX_EPOCH + Duration::from_micros(1_800_000_000_000_042);
    for (since, first, later) in [
        ("now", "@1800000000.000042", "@1800000000.000042"),
        ("-1h", "-1h", "-1h 2500000us"),
        ("-5", "-5", "-5 2500000us"),
        ("1h ago", "1h ago", "1h 2500000us ago"),
        ("today", "today", "today"),
        ("2026-01-31 12:00:00", "2026-01-31 12:00:00", "2026-01-31 12:00:00"),
    ] {
        assert_eq!(since_began(since, began, Duration::ZERO), first);
        assert_eq!(since_began(since, began, Duration::from_millis(2500)), later);
    }
}

#[tokio::test]
async fn a_program_that_ends_before_its_first_entry_reads_from_the_same_time_again() {
    let journal = Journal::with(&[]);
    let yaml = journal.yaml("since: now, restart_delay: 10ms");
    let running = start::<JournaldSource>(&yaml, 1 << 20, BTreeMap::new());
    while journal.calls().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.stop.request();
    let sent = tokio::time::timeout(PATIENCE, running.finish()).await.unwrap();
    assert!(sent.result.is_none() && sent.main.is_empty());
    let calls = journal.calls();
    assert!(calls[0].contains(" --since=@") && calls[0] == calls[1], "{calls:?}");
}
