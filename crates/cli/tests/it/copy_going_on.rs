//! `thalweg copy` that is interrupted, and resumes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{House, said};
use crate::copy::{content, copy, jobs, run_well, tree};

/// Starts a command and kills it once `is_far` returns true. Returns true if it was still running.
fn kill(mut command: Command, is_far: impl Fn() -> bool) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if is_far() {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the allocated bytes of the unfinished files.
fn drafted(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.blocks() * 512).sum()
}

#[test]
fn a_copy_that_is_killed_goes_on_and_what_it_writes_is_not_seen_before_it_is_whole() {
    let house = House::with(&[]);
    let bytes = content(96 << 20);
    house.write("large.bin", &bytes);
    let out = house.path().join("out");
    let arguments = ["large.bin", "out/", "--part-size", "1MiB", "--mode", "sequential"];
    assert!(kill(copy(&house, &arguments), || drafted(&out) > 8 << 20));
    assert!(!out.join("large.bin").exists());
    assert_eq!(jobs(&house), 1);
    let said = run_well(&house, &arguments);
    assert!(said.err.contains("resuming an interrupted copy"), "{}", said.err);
    assert!(said.err.contains("kept from a former copy"), "{}", said.err);
    assert!(fs::read(out.join("large.bin")).unwrap() == bytes);
    assert_eq!((fs::read_dir(&out).unwrap().count(), jobs(&house)), (1, 0));
}

#[test]
fn rows_are_the_same_after_a_kill() {
    let house = House::with(&[]);
    let mut text = "n,name\n".to_owned();
    (0..1_500_000).for_each(|number| text += &format!("{number},name of {number}\n"));
    house.write("rows.csv", text.as_bytes());
    let options = ["--parse", "csv", "--encode", "json", "--part-size", "1MiB", "--memory", "16MiB"];
    run_well(&house, &[&["rows.csv", "whole.jsonl"], &options[..]].concat());
    let arguments = [&["rows.csv", "out/rows.jsonl"], &options[..]].concat();
    let out = house.path().join("out");
    assert!(kill(copy(&house, &arguments), || drafted(&out) > 8 << 20));
    assert!(!out.join("rows.jsonl").exists());
    let said = run_well(&house, &arguments);
    assert!(said.err.contains("resuming an interrupted copy"), "{}", said.err);
    assert!(house.read("out/rows.jsonl") == house.read("whole.jsonl"));
    assert_eq!((fs::read_dir(&out).unwrap().count(), jobs(&house)), (1, 0));
}

#[test]
fn a_copy_can_begin_anew_and_leaves_nothing_of_the_former_one() {
    let house = House::with(&[]);
    house.write("large.bin", &content(96 << 20));
    let out = house.path().join("out");
    let arguments = ["large.bin", "out/", "--part-size", "1MiB", "--mode", "sequential"];
    assert!(kill(copy(&house, &arguments), || drafted(&out) > 4 << 20));
    let said = run_well(&house, &[&arguments[..], &["--restart"]].concat());
    assert!(!said.err.contains("former copy") && !said.err.contains("resuming"), "{}", said.err);
    assert_eq!((fs::read_dir(&out).unwrap().count(), jobs(&house)), (1, 0));
}

#[test]
fn the_unfinished_object_of_a_file_that_no_longer_exists_is_removed() {
    let house = House::with(&[]);
    fs::create_dir(house.path().join("tree")).unwrap();
    house.write("tree/large.bin", &content(96 << 20));
    let out = house.path().join("out");
    let arguments = ["tree/", "out/", "--part-size", "1MiB", "--mode", "sequential"];
    assert!(kill(copy(&house, &arguments), || drafted(&out) > 4 << 20));
    fs::remove_file(house.path().join("tree/large.bin")).unwrap();
    house.write("tree/small", b"small");
    run_well(&house, &arguments);
    assert_eq!(tree(&out), BTreeMap::from([("small".to_owned(), b"small".to_vec())]));
}

#[test]
fn a_copy_that_is_told_to_stop_says_that_it_may_not_be_whole() {
    let house = House::with(&[]);
    fs::create_dir(house.path().join("tree")).unwrap();
    (0..900).for_each(|number| house.write(&format!("tree/{number}"), &content(100)));
    let out = house.path().join("out");
    let arguments = ["tree/", "out/", "--mode", "sequential"];
    let child = copy(&house, &arguments).stderr(Stdio::piped()).spawn().unwrap();
    while !out.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let stopped = said(child.wait_with_output().unwrap());
    assert_eq!(stopped.code, Some(3), "{}", stopped.err);
    assert!(stopped.err.contains("the same command resumes the copy"), "{}", stopped.err);
    let copied = tree(&out).len();
    let said = run_well(&house, &arguments);
    // A tree is listed in order, so the copy resumes after the files that were copied.
    assert!(said.err.contains(&format!(" {} files copied", 900 - copied)), "{copied} before: {}", said.err);
    assert!(tree(&house.path().join("tree")) == tree(&out));
}

#[test]
fn a_copy_that_is_told_to_stop_when_everything_is_on_its_way_is_whole() {
    let house = House::with(&[]);
    let bytes = content(96 << 20);
    house.write("large.bin", &bytes);
    let out = house.path().join("out");
    let arguments = ["large.bin", "out/", "--part-size", "1MiB", "--mode", "sequential"];
    let child = copy(&house, &arguments).stderr(Stdio::piped()).spawn().unwrap();
    while drafted(&out) < 8 << 20 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let whole = said(child.wait_with_output().unwrap());
    assert_eq!(whole.code, Some(0), "{}", whole.err);
    assert!(fs::read(out.join("large.bin")).unwrap() == bytes);
    assert_eq!(jobs(&house), 0);
}

/// Runs a command and asks it to stop a moment later.
pub fn stop_soon(command: &mut Command) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
    child.wait().unwrap();
}

#[test]
fn rows_of_several_files_are_whole_in_one_object_however_often_the_copy_is_told_to_stop() {
    let house = House::with(&[]);
    fs::create_dir(house.path().join("in")).unwrap();
    let mut all = Vec::new();
    for file in 0..3000 {
        let lines: Vec<String> = (0..50).map(|line| format!("{file:04} {line:02}")).collect();
        house.write(&format!("in/{file:04}.log"), (lines.join("\n") + "\n").as_bytes());
        all.extend(lines);
    }
    let arguments = ["in/*.log", "all.log", "--parse", "lines", "--memory", "4MiB"];
    (0..3).for_each(|_| stop_soon(&mut copy(&house, &arguments)));
    run_well(&house, &arguments);
    let mut copied = house.lines("all.log");
    copied.sort();
    assert!(copied == all, "{} of {} rows", copied.len(), all.len());
    assert_eq!(tree(house.path()).keys().filter(|name| name.starts_with("all")).count(), 1);
}

#[test]
fn a_complete_object_is_not_replaced_by_the_rows_of_a_later_copy_with_the_same_state() {
    let house = House::with(&[]);
    fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/a.log", b"one\n");
    let run = || {
        said(
            house
                .command(&["copy", "in/*.log", "all.log", "--parse", "lines", "--state", "s"])
                .output()
                .unwrap(),
        )
    };
    assert_eq!(run().code, Some(0));
    // Local files are read again in each run.
    let said = run();
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!((house.read("all.log"), house.read("all-00002.log")), ("one\n".into(), "one\n".into()));
}

#[test]
fn a_name_that_cannot_be_listed_does_not_keep_the_others_from_being_copied() {
    use std::os::unix::ffi::OsStrExt;
    let house = House::with(&[]);
    fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/a", b"1");
    house.write("in/z", b"2");
    fs::write(house.path().join("in").join(std::ffi::OsStr::from_bytes(b"m\xff")), "3").unwrap();
    std::os::unix::fs::symlink("loop", house.path().join("in/loop")).unwrap();
    house.write("secret", b"secret");
    std::os::unix::fs::symlink("../secret", house.path().join("in/out")).unwrap();
    let said = said(copy(&house, &["in/", "out/"]).output().unwrap());
    assert_eq!(said.code, Some(1), "{}", said.err);
    let expected = [("a", b"1"), ("z", b"2")].map(|(name, text)| (name.to_owned(), text.to_vec()));
    assert_eq!(tree(&house.path().join("out")), BTreeMap::from(expected));
}
