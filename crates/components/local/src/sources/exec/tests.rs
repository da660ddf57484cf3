use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_engine::testing::{Arrived, Sent, options, payloads, refused, start};

use super::*;

/// A timeout far longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

async fn sent(yaml: &str) -> Sent {
    let running = start::<ExecSource>(yaml, 1 << 20, BTreeMap::new());
    tokio::time::timeout(PATIENCE, running.finish()).await.unwrap()
}

fn rejected(sent: &Sent) -> Vec<String> {
    sent.errors.iter().flat_map(payloads).collect()
}

#[tokio::test]
async fn the_output_of_a_program_is_read_to_its_end() {
    let sent = sent("command: printf 'one\\ntwo\\nthree'").await;
    assert!(sent.result.is_none());
    assert_eq!(sent.payloads(), ["one", "two", "three"]);
    assert_eq!(sent.main[0].meta().path.as_deref(), Some("printf"));
}

#[tokio::test]
async fn more_than_a_pipe_holds_arrives_whole() {
    let yaml = "command: [seq, '100000']";
    for batch_bytes in [100, 1 << 20] {
        let running = start::<ExecSource>(yaml, batch_bytes, BTreeMap::new());
        let sent = tokio::time::timeout(PATIENCE, running.finish()).await.unwrap();
        let expected: Vec<String> = (1..=100_000).map(|number| number.to_string()).collect();
        assert!(sent.payloads() == expected, "batches of {batch_bytes}");
    }
}

#[tokio::test]
async fn a_program_has_an_environment_a_folder_and_a_framing() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = format!(
        "{{ command: [sh, -c, 'pwd; printf \"$GREETING--end\"'], env: {{ GREETING: hello }}, directory: '{}', \
         framing: {{ delimiter: '--' }} }}",
        folder.path().canonicalize().unwrap().display()
    );
    let sent = sent(&yaml).await;
    let pwd = folder.path().canonicalize().unwrap();
    assert_eq!(sent.payloads(), [format!("{}\nhello", pwd.display()), "end".to_owned()]);
}

#[tokio::test]
async fn the_standard_error_output_is_messages_only_if_wanted() {
    for (stderr, expected) in [("log", &["out"][..]), ("ignore", &["out"]), ("messages", &["out", "err"])] {
        let yaml = format!("{{ command: [sh, -c, 'echo out; echo err >&2'], stderr: {stderr} }}");
        assert_eq!(sent(&yaml).await.payloads(), expected, "{stderr}");
    }
}

#[tokio::test]
async fn a_failure_is_an_error_after_what_was_read() {
    let failing = sent("command: [sh, -c, 'echo one; exit 3']").await;
    assert_eq!(failing.payloads(), ["one"]);
    assert_eq!(failing.result.unwrap().full(), "`sh` ended with exit code 3");
    let failing = sent("command: [sh, -c, 'echo why >&2; echo one; echo really >&2; exit 3']").await;
    assert_eq!(failing.payloads(), ["one"]);
    assert_eq!(failing.result.unwrap().full(), "`sh` ended with exit code 3: why\nreally");
    let failing = sent("{ command: [sh, -c, 'echo one; exit 3'], on_failure: continue }").await;
    assert!(failing.result.is_none());
    assert_eq!(failing.payloads(), ["one"]);
    let missing = sent("command: thalweg-no-such-program").await.result.unwrap().full();
    assert!(
        missing.starts_with("`thalweg-no-such-program` was not found in any folder of `PATH`"),
        "{missing}"
    );
}

#[tokio::test]
async fn all_that_a_program_wrote_before_it_failed_arrives() {
    let yaml = "command: [sh, -c, 'seq 20000; echo why >&2; exit 3']";
    let running = start::<ExecSource>(yaml, 100, BTreeMap::new());
    let sent = tokio::time::timeout(PATIENCE, running.finish()).await.unwrap();
    let expected: Vec<String> = (1..=20_000).map(|number| number.to_string()).collect();
    assert!(sent.payloads() == expected, "{} messages", sent.payloads().len());
    assert_eq!(sent.result.unwrap().full(), "`sh` ended with exit code 3: why");
}

#[tokio::test]
async fn what_takes_too_long_is_ended_and_its_last_message_rejected() {
    let yaml = "{ command: [sh, -c, 'echo one; printf tw; sleep 1000'], timeout: 500ms }";
    let sent = sent(yaml).await;
    assert_eq!(sent.payloads(), ["one"]);
    assert_eq!(rejected(&sent), ["tw"]);
    assert_eq!(sent.result.unwrap().full(), "`sh` took longer than 500ms and was killed");
}

#[tokio::test]
async fn a_stop_delivers_what_the_program_writes_while_it_ends() {
    let script = "trap \"echo bye; exit 7\" TERM; echo on; while :; do sleep 0.02; done";
    let yaml = format!("{{ command: [sh, -c, '{script}'], stop_timeout: 1m }}");
    let running = start::<ExecSource>(&yaml, 1 << 20, BTreeMap::new());
    let next = async || {
        let taken = tokio::time::timeout(PATIENCE, running.main.take()).await;
        let Some((_, Arrived::Messages(batch))) = taken.unwrap() else { panic!("it ended") };
        payloads(&batch)
    };
    assert_eq!(next().await, ["on"]);
    running.stop.request();
    assert_eq!(next().await, ["bye"]);
    tokio::time::timeout(PATIENCE, running.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_program_runs_again_at_its_times() {
    let folder = tempfile::tempdir().unwrap();
    for times in ["every: 20ms", "restart: true, restart_delay: 1ms"] {
        // Every second run fails.
        let script = "echo x >> runs; wc -l < runs; [ $(($(wc -l < runs) % 2)) = 1 ]";
        let yaml =
            format!("{{ command: [sh, -c, '{script}'], directory: '{}', {times} }}", folder.path().display());
        let running = start::<ExecSource>(&yaml, 1 << 20, BTreeMap::new());
        for number in 1..=4 {
            let taken = tokio::time::timeout(PATIENCE, running.main.take()).await;
            let Some((_, Arrived::Messages(batch))) = taken.unwrap() else { panic!("it ended") };
            assert_eq!(payloads(&batch)[0].trim(), number.to_string(), "{times}");
        }
        running.stop.request();
        tokio::time::timeout(PATIENCE, running.task).await.unwrap().unwrap().unwrap();
        std::fs::remove_file(folder.path().join("runs")).unwrap();
    }
}

#[test]
fn options_that_exclude_each_other_are_mistakes() {
    let mistake = |yaml: &str| options::<ExecSource>(yaml).check()[0].message.clone();
    for (yaml, expected) in [
        ("{ command: a, every: 1s, restart: true }", "`every` and `restart` exclude each other."),
        ("{ command: a, every: 0s }", "`every` cannot be 0."),
        ("{ command: a, timezone: Mars }", "`Mars` is not a time zone."),
        ("{ command: a, timezone: UTC }", "`timezone` has no effect without `cron`."),
        ("{ command: a, restart_delay: 1s }", "`restart_delay` has no effect without `restart`."),
        ("{ command: a, env: { 'a=b': c } }", "`a=b` is not a valid name of an environment variable."),
    ] {
        assert_eq!(mistake(yaml), expected);
    }
    assert!(refused::<ExecSource>("command: ''").contains("The command has no name"));
    assert!(refused::<ExecSource>("{ command: a, cron: '* *' }").contains("`* *` is not a line of times"));
}

#[test]
fn only_a_program_that_runs_once_starts_over() {
    assert!(options::<ExecSource>("command: a").starts_over());
    assert!(!options::<ExecSource>("{ command: a, cron: '@daily' }").starts_over());
    assert!(!options::<ExecSource>("{ command: a, cron: '@daily', timezone: Europe/Berlin }").resends());
}
