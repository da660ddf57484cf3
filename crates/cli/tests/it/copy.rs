//! `thalweg copy` between folders, run as a user runs it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use thalweg_testbed::WebDav;

use crate::common::{House, Said, said};

/// Returns a copy command that keeps its state in the test's folder.
pub fn copy(house: &House, arguments: &[&str]) -> Command {
    let mut command = house.command(&[&["copy"], arguments].concat());
    command.env("XDG_STATE_HOME", house.path().join("kept"));
    command
}

fn run(house: &House, arguments: &[&str]) -> Said {
    said(copy(house, arguments).output().unwrap())
}

pub fn run_well(house: &House, arguments: &[&str]) -> Said {
    let said = run(house, arguments);
    assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
    said
}

/// Returns all files below a folder, by their relative names.
pub fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Returns the number of interrupted copies in the state folder.
pub fn jobs(house: &House) -> usize {
    fs::read_dir(house.path().join("kept/thalweg/copies")).map_or(0, Iterator::count)
}

/// Returns bytes that do not repeat.
pub fn content(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        bytes.extend_from_slice(&(state >> 13).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn with_tree() -> House {
    let house = House::with(&[]);
    fs::create_dir_all(house.path().join("tree/deep/deeper")).unwrap();
    house.write("tree/a.txt", b"first");
    house.write("tree/empty", b"");
    house.write("tree/deep/Grüße 日本 %41.txt", "ünïcode".as_bytes());
    house.write("tree/deep/deeper/large.bin", &content(3_000_000));
    house
}

#[test]
fn a_tree_is_copied_as_it_is_and_nothing_is_left_behind() {
    let house = with_tree();
    let said = run_well(&house, &["tree/", "copy/"]);
    assert_eq!(tree(&house.path().join("tree")), tree(&house.path().join("copy")));
    assert!(said.err.contains("4 files copied"), "{}", said.err);
    assert_eq!(jobs(&house), 0);
}

#[test]
fn a_tree_of_a_webdav_server_is_read_and_none_is_written() {
    let (house, server) = (with_tree(), WebDav::start().unwrap());
    run_well(&house, &["tree/", &format!("{}/there/", server.folder().display())]);
    run_well(&house, &[&server.url("there/"), "copy/"]);
    assert_eq!(tree(&house.path().join("tree")), tree(&house.path().join("copy")));
    let refused = run(&house, &["tree/", &server.url("new/")]);
    assert!(refused.code == Some(2) && refused.err.contains("cannot be written to"), "{}", refused.err);
}

#[test]
fn files_are_copied_with_almost_no_memory() {
    let house = with_tree();
    let config = "memory: 0\nsources: { in: { files: { path: 'tree/**' } } }\npipelines: { main: { from: in, to: \
                  out } }\nsinks: { out: { directory: { path: written, name: '{folder}{name}' } } }\n";
    house.write("pipeline.yaml", config.as_bytes());
    house.run_well(&["run", "pipeline.yaml"]);
    assert_eq!(tree(&house.path().join("tree")), tree(&house.path().join("written")));
    for memory in ["0", "1KiB", "80KiB"] {
        run_well(&house, &["tree/", "copy/", "--memory", memory]);
        assert_eq!(tree(&house.path().join("tree")), tree(&house.path().join("copy")), "{memory}");
    }
}

#[test]
fn one_file_goes_to_a_name_or_into_a_folder() {
    let house = House::with(&[("a ü.txt", "text")]);
    run_well(&house, &["a ü.txt", "b.txt"]);
    assert_eq!(house.read("b.txt"), "text");
    run_well(&house, &["a ü.txt", "new/folder/"]);
    assert_eq!(house.read("new/folder/a ü.txt"), "text");
    fs::create_dir(house.path().join("there")).unwrap();
    run_well(&house, &["a ü.txt", "there"]);
    assert_eq!(house.read("there/a ü.txt"), "text");
}

#[test]
fn the_checksum_of_one_object_is_told_however_many_parts_it_had() {
    let house = House::with(&[("a", "123456789")]);
    // The standard test value of CRC-32C.
    assert!(run_well(&house, &["a", "b"]).err.contains("crc32c e3069283"));
    house.write("large", &content(5_000_000));
    let output = |arguments: &[&str]| {
        let said = run_well(&house, arguments).err;
        said.split("crc32c ").nth(1).unwrap().get(..8).unwrap().to_owned()
    };
    let whole = output(&["large", "one", "--part-size", "8MiB"]);
    assert_eq!(output(&["large", "several", "--part-size", "1MiB"]), whole);
    assert_eq!(
        output(&["large", "lines", "--parse", "lines", "--encode", "raw", "--memory", "1MiB"]).len(),
        8
    );
}

#[test]
fn patterns_choose_what_is_copied() {
    let house = with_tree();
    run_well(&house, &["tree/**/*.txt", "one/"]);
    let names = |folder: &str| tree(&house.path().join(folder)).into_keys().collect::<Vec<_>>();
    assert_eq!(names("one"), ["a.txt", "deep/Grüße 日本 %41.txt"]);
    run_well(&house, &["tree/", "two/", "--include", "*.txt", "--include", "*.bin", "--exclude", "a*"]);
    assert_eq!(names("two"), ["deep/Grüße 日本 %41.txt", "deep/deeper/large.bin"]);
}

#[test]
fn files_that_stay_are_not_counted_as_read() {
    let house = House::with(&[]);
    fs::create_dir(house.path().join("in")).unwrap();
    (0..3).for_each(|number| house.write(&format!("in/{number}"), &[b'x'; 1000]));
    let figures = |arguments: &[&str]| {
        let said = run_well(&house, &[&["in/", "out/", "--json"], arguments].concat());
        let line: serde_json::Value = serde_json::from_str(said.err.lines().last().unwrap()).unwrap();
        (line["copy"]["read_bytes"].as_u64().unwrap(), line["copy"]["skipped_files"].as_u64().unwrap())
    };
    assert_eq!(figures(&[]), (3000, 0));
    assert_eq!(figures(&["--existing", "update"]), (0, 3));
}

#[test]
fn links_that_lead_out_are_copied_only_if_asked() {
    use std::os::unix::fs::symlink;
    let house = House::with(&[("secret", "outside")]);
    fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/a", b"inside");
    symlink("../secret", house.path().join("in/link")).unwrap();
    symlink("loop", house.path().join("in/loop")).unwrap();
    let said = run(&house, &["in/", "out/"]);
    let expected = "in/link` leads out of the folder that is read, and was skipped. `symlinks: files`, or `--symlinks \
                    files` of `copy`, reads it";
    assert!(said.err.contains(expected), "{}", said.err);
    assert_eq!(tree(&house.path().join("out")).into_keys().collect::<Vec<_>>(), ["a"]);
    run(&house, &["in/", "all/", "--symlinks", "files"]);
    assert_eq!(tree(&house.path().join("all"))["link"], b"outside");
    for name in ["in/a", "in/loop"] {
        fs::remove_file(house.path().join(name)).unwrap();
    }
    let said = run(&house, &["in/", "out/"]);
    let expected = "there is nothing to copy: `in/` matches only links that lead out of it, such as `";
    assert!(said.err.contains(expected) && said.err.contains("`--symlinks files` copies"), "{}", said.err);
    run_well(&house, &["in/", "alone/", "--symlinks", "files"]);
    assert_eq!(tree(&house.path().join("alone"))["link"], b"outside");
}

/// Without a visit to the dead letters.
#[test]
fn a_reason_that_all_files_have_in_common_is_in_the_summary() {
    let house = House::with(&[("b", "a file where a folder is needed")]);
    fs::create_dir(house.path().join("in")).unwrap();
    for name in ["one", "two"] {
        house.write(&format!("in/{name}"), b"text");
    }
    fs::create_dir(house.path().join("out")).unwrap();
    fs::create_dir(house.path().join("out/one")).unwrap();
    fs::create_dir(house.path().join("out/two")).unwrap();
    let said = run(&house, &["in/", "out/"]);
    assert!(said.err.contains("shows them (all alike: "), "{}", said.err);
    fs::remove_dir(house.path().join("out/two")).unwrap();
    let said = run(&house, &["in/", "out/"]);
    assert!(said.err.contains("1 file could not be copied: `thalweg errors list --state"), "{}", said.err);
    assert!(said.err.contains("shows them (") && !said.err.contains("alike"), "{}", said.err);
}

#[test]
fn holes_of_a_file_stay_holes() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let house = House::with(&[]);
    let file = fs::File::create(house.path().join("sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(b"data", 32 << 20).unwrap();
    run_well(&house, &["sparse", "copied"]);
    let copied = fs::metadata(house.path().join("copied")).unwrap();
    assert_eq!(copied.len(), 64 << 20);
    assert!(copied.blocks() * 512 < 8 << 20, "{} blocks", copied.blocks());
    assert!(fs::read(house.path().join("copied")).unwrap() == fs::read(house.path().join("sparse")).unwrap());
}

#[test]
fn existing_objects_are_replaced_skipped_or_rejected() {
    let house = House::with(&[("a", "new text"), ("b", "old")]);
    let said = run_well(&house, &["a", "b", "--existing", "skip"]);
    assert_eq!(house.read("b"), "old");
    assert!(said.err.contains("0 files copied") && said.err.contains("1 file skipped"), "{}", said.err);
    let said = run(&house, &["a", "b", "--existing", "error"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("1 file could not be copied"), "{}", said.err);
    assert_eq!(house.read("b"), "old");
    run_well(&house, &["a", "b", "--existing", "update"]);
    assert_eq!(house.read("b"), "new text");
    house.write("b", b"old");
    run_well(&house, &["a", "b"]);
    assert_eq!(house.read("b"), "new text");
}

#[test]
fn failures_of_a_copy_are_shown_and_retried_by_the_next_copy() {
    let house = House::with(&[("a", "new"), ("b", "old")]);
    let arguments = ["a", "b", "--existing", "error"];
    let first = run(&house, &arguments);
    let command = first.err.split('`').find(|part| part.starts_with("thalweg errors")).unwrap().to_owned();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let shown = house.run_well(&words);
    assert!(shown.out.contains("already"), "{}", shown.out);
    fs::remove_file(house.path().join("b")).unwrap();
    run_well(&house, &arguments);
    assert_eq!((house.read("b").as_str(), jobs(&house)), ("new", 0));
}

const PEOPLE: &str = "name,age,city\nAda,36,London\nBob,17,Paris\n\"Eve, Dr.\",50,Köln\n";

#[test]
fn rows_are_changed_on_their_way() {
    let house = House::with(&[("people.csv", PEOPLE)]);
    let options = ["--parse", "csv", "--encode", "jsonl", "--type", "age=int", "--where", "age >= 18"];
    let more = ["--set", "next=age + 1", "--set", "name=upper(name)", "--keep", "name,next"];
    let said = run_well(&house, &[&["people.csv", "out/"], &options[..], &more[..]].concat());
    assert_eq!(
        house.lines("out/people.jsonl"),
        [r#"{"name":"ADA","next":37}"#, r#"{"name":"EVE, DR.","next":51}"#]
    );
    assert!(said.err.contains("2 rows copied") && said.err.contains("of 1 object"), "{}", said.err);
    assert_eq!(jobs(&house), 0);
}

#[test]
fn the_rows_of_several_objects_become_one_object_with_one_header() {
    let house = House::with(&[("a.csv", PEOPLE), ("b.csv", "name,age,city\nZoe,80,Rom\n")]);
    run_well(&house, &["*.csv", "all.txt", "--parse", "csv"]);
    let mut lines = house.lines("all.txt");
    assert_eq!(lines.remove(0), "name,age,city");
    lines.sort();
    assert_eq!(lines, ["\"Eve, Dr.\",50,Köln", "Ada,36,London", "Bob,17,Paris", "Zoe,80,Rom"]);
}

#[test]
fn other_forms_of_rows_are_read_and_written() {
    let house = House::with(&[("a.jsonl", "{\"a\":1,\"b\":\"x\"}\n{\"a\":2}\n"), ("b.log", "one\ntwo\n")]);
    house.write("c.csv", b"1;x\n2;y\n");
    run_well(&house, &["a.jsonl", "a.csv", "--parse", "jsonl", "--encode", "csv", "--keep", "a"]);
    assert_eq!(house.read("a.csv"), "a\n1\n2\n");
    run_well(&house, &["b.log", "b2.log", "--parse", "lines", "--where", "payload <> 'one'"]);
    assert_eq!(house.read("b2.log"), "two\n");
    let csv = ["--parse", "csv", "--delimiter", ";", "--columns", "n,l"];
    run_well(&house, &[&["c.csv", "c2.csv"], &csv[..]].concat());
    assert_eq!(house.read("c2.csv"), "n;l\n1;x\n2;y\n");
    let text = ["--encode", "text", "--template", "{l}={n}"];
    run_well(&house, &[&["c.csv", "c.txt"], &csv[..], &text[..]].concat());
    assert_eq!(house.read("c.txt"), "x=1\ny=2\n");
}

#[test]
fn rows_of_other_character_sets_are_written_in_utf_8() {
    let house = House::with(&[]);
    house.write("a.csv", b"n\xe4me;n\ncaf\xe9;1\n");
    let units = "\u{feff}caf\u{e9}\r\n\u{a0a}\n".encode_utf16();
    house.write("b.log", &units.flat_map(u16::to_be_bytes).collect::<Vec<u8>>());
    let csv = ["a.csv", "a.jsonl", "--parse", "csv", "--encode", "json", "--delimiter", ";"];
    run_well(&house, &[&csv[..], &["--charset", "latin1", "--keep", "n\u{e4}me"]].concat());
    assert_eq!(house.read("a.jsonl"), "{\"n\u{e4}me\":\"caf\u{e9}\"}\n");
    run_well(&house, &["b.log", "c.log", "--parse", "lines", "--charset", "utf-16"]);
    assert_eq!(house.read("c.log"), "caf\u{e9}\n\u{a0a}\n");
    let said = run(&house, &["b.log", "d.log", "--parse", "lines", "--charset", "latin9000"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("`latin9000` is not a known character set"), "{}", said.err);
}

#[test]
fn rows_that_cannot_be_read_are_told_and_the_others_are_copied() {
    let house = House::with(&[("people.csv", "name,age\nAda,36\nBob,old\n")]);
    let arguments = ["people.csv", "all.jsonl", "--parse", "csv", "--encode", "json", "--type", "age=int"];
    let said = run_well(&house, &arguments);
    assert_eq!(house.read("all.jsonl"), "{\"name\":\"Ada\",\"age\":36}\n");
    assert!(said.err.contains("1 row could not be copied: `thalweg errors list --state"), "{}", said.err);
    let said = run(&house, &[&arguments[..], &["--strict"]].concat());
    assert_eq!(said.code, Some(1), "{}", said.err);
}

/// A column that does not exist is NULL elsewhere, and the copy would have no rows.
#[test]
fn a_misspelled_column_of_a_table_is_a_mistake() {
    let house = House::with(&[("t.csv", "city,temp_max\nA,31\n"), ("u.csv", "city,temp\nB,1\n")]);
    let csv = ["--parse", "csv", "--encode", "parquet"];
    let expected = "is not a column of `";
    for wrong in [["--where", "temp_mx > 30"], ["--keep", "city,temp_mx"]] {
        let said = run(&house, &[&["t.csv", "out.parquet"], &csv[..], &wrong[..]].concat());
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(&format!("`{}`: `temp_mx` {expected}", wrong[0])), "{}", said.err);
        assert!(
            said.err.contains("did you mean `temp_max`? Its columns are `city`, `temp_max`"),
            "{}",
            said.err
        );
        assert!(!house.path().join("out.parquet").exists());
    }
    // Another object may have it.
    let csv = ["--parse", "csv", "--encode", "json", "--where", "temp > 0"];
    let said = run_well(&house, &[&["*.csv", "out.jsonl"], &csv[..]].concat());
    assert!(said.err.contains("`--where`: `temp` is not a column of `"), "{}", said.err);
}

#[test]
fn nothing_to_copy_is_said() {
    let house = House::with(&[]);
    fs::create_dir(house.path().join("empty")).unwrap();
    for arguments in [&["empty/", "copy/"][..], &["none", "copy"], &["empty/", "all.csv", "--parse", "csv"]] {
        let said = run(&house, arguments);
        assert_eq!(said.code, Some(3), "{arguments:?}: {said:?}");
        assert!(said.err.contains("nothing to copy") || said.err.contains("there is no"), "{}", said.err);
    }
    assert!(!house.path().join("all.csv").exists() && !house.path().join("copy").exists());
}

#[test]
fn mistakes_are_reported_before_anything_is_copied() {
    let house = with_tree();
    house.write("people.csv", PEOPLE.as_bytes());
    let csv = ["people.csv", "all.jsonl", "--parse", "csv"];
    let with = |more: &[&'static str]| [&csv[..], more].concat();
    for (arguments, wanted) in [
        (vec!["ftp://x/y", "z"], "`ftp` is not among"),
        (vec!["people.csv", "ftp://x/y"], "`ftp` is not among"),
        (vec!["people.csv", "https://example.invalid/x"], "cannot be written to"),
        (vec!["people.csv", "./people.csv"], "the same object"),
        (vec!["people.csv", "."], "the same object"),
        (vec!["tree/", "tree/copy/"], "read again"),
        (vec!["tree/", "tree/all.txt", "--parse", "lines"], "read again"),
        (vec!["tree", "copy/"], "with a slash at the end: `tree/`"),
        (vec!["tree/", "copy"], "with a slash at the end: `copy/`"),
        (vec!["tree/", "copy/", "--parse", "lines"], "give TO a name"),
        (vec!["people.csv", "x", "--encode", "json"], "--parse"),
        (vec!["people.csv", "x", "--mode", "sequential", "--readers", "2"], "contradicts"),
        (vec!["people.csv", "x", "--part-size", "much"], "much"),
        (vec!["people.csv", "x", "--restart", "--no-resume"], "cannot be used with"),
        (with(&["--encode", "orc"]), "orc"),
        (with(&["--where", "age >= >= 1"]), "--where 'age >= >= 1'"),
        (with(&["--type", "age=number"]), "--type age=number"),
    ] {
        let said = run(&house, &arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {said:?}");
        assert!(said.err.contains(wanted), "{arguments:?}: {}", said.err);
    }
    assert!(!house.path().join("kept").exists() && !house.path().join("all.jsonl").exists());
}

#[test]
fn a_dry_run_says_what_would_be_copied_and_writes_nothing() {
    let house = with_tree();
    let said = run_well(&house, &["tree/", "copy/", "--dry-run"]);
    assert!(said.out.contains("/tree/deep/Grüße 日本 %41.txt → /"), "{}", said.out);
    assert!(said.out.contains("/copy/deep/Grüße 日本 %41.txt\n"), "{}", said.out);
    assert!(said.out.contains("2.86 MiB  4 objects, and nothing is written"), "{}", said.out);
    let said = run_well(&house, &["tree/a.txt", "b.txt", "--parse", "lines", "--where", "true", "--dry-run"]);
    assert!(said.out.contains("copy.filter"), "{}", said.out);
    assert!(!house.path().join("copy").exists() && !house.path().join("b.txt").exists());
}

#[test]
fn a_dry_run_lists_what_existing_objects_leave() {
    let house = with_tree();
    run_well(&house, &["tree/a.txt", "copy/", "--quiet"]);
    for existing in ["skip", "update"] {
        let said = run_well(&house, &["tree/", "copy/", "--existing", existing, "--dry-run"]);
        assert!(!said.out.contains("/tree/a.txt"), "{}", said.out);
        assert!(said.out.contains("3 objects, and nothing is written"), "{}", said.out);
    }
    house.write("tree/a.txt", b"another size");
    let said = run_well(&house, &["tree/", "copy/", "--existing", "update", "--dry-run"]);
    assert!(said.out.contains("/tree/a.txt"), "{}", said.out);
}

#[test]
fn a_misspelt_option_of_a_store_is_a_mistake() {
    let said = House::with(&[("a", "")]).run(&["copy", "a", "s3://bucket/a?regon=eu"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("`s3` has no option `regon`; did you mean `region`?"), "{}", said.err);
}

#[test]
fn the_printed_configuration_does_the_same() {
    let house = House::with(&[("people.csv", PEOPLE)]);
    let arguments =
        ["people.csv", "out/", "--parse", "csv", "--encode", "json", "--where", "city <> 'a: $x'"];
    let printed =
        run_well(&house, &[&arguments[..], &["--mode", "sequential", "--print-config"]].concat()).out;
    assert!(!house.path().join("out").exists());
    house.write("copy.yaml", printed.as_bytes());
    house.run_well(&["run", "copy.yaml"]);
    let by_run = house.read("out/people.jsonl");
    run_well(&house, &arguments);
    assert_eq!(by_run, house.read("out/people.jsonl"));
    assert_eq!(by_run.lines().count(), 3);
}

#[test]
fn a_printed_configuration_takes_secrets_from_variables() {
    let house = House::with(&[]);
    let from = "http://me:pa55word@127.0.0.1:1/a.csv?sig=s3cret-token";
    let printed = run_well(&house, &[from, "to.csv", "--print-config"]).out;
    let url = "url: \"http://${USER}:${PASSWORD}@127.0.0.1:1/a.csv?sig=${SIG}\"";
    assert!(printed.contains(url), "{printed}");
}

#[test]
fn every_mode_copies_the_same() {
    let house = with_tree();
    for mode in ["sequential", "parallel", "parallel=3", "channel", "auto"] {
        let to = format!("{mode}/");
        run_well(&house, &["tree/", &to, "--mode", mode, "--part-size", "64KiB", "--memory", "4MiB"]);
        assert_eq!(tree(&house.path().join("tree")), tree(&house.path().join(mode)), "{mode}");
    }
}

#[test]
fn programs_read_the_summary_as_json() {
    let house = with_tree();
    let said = run_well(&house, &["tree/", "copy/", "--json"]);
    let last: serde_json::Value = serde_json::from_str(said.err.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "summary");
    assert_eq!(last["copy"]["files_copied"], 4);
    assert_eq!(last["copy"]["not_copied"], 0);
    assert!(last["copy"]["written_bytes"].as_u64().unwrap() > 3_000_000, "{last}");
}

#[test]
fn rows_become_a_table() {
    let house = House::with(&[("people.csv", "name,age\nAda,36\nGrace,85\n")]);
    let said =
        run_well(&house, &["people.csv", "./", "--parse", "csv", "--type", "age=int", "--encode", "parquet"]);
    assert!(said.err.contains("2 rows copied"), "{}", said.err);
    let table = fs::read(house.path().join("people.parquet")).unwrap();
    assert!(table.starts_with(b"PAR1") && table.ends_with(b"PAR1"));
    let said = self::run(&house, &["people.csv", "x.parquet", "--parse", "lines", "--encode", "parquet"]);
    assert_eq!(said.code, Some(3));
    assert!(said.err.contains("have no fields to make columns of"), "{}", said.err);
    assert!(!house.path().join("x.parquet").exists());
}

/// Returns the permissions of a file of others, and of its folder.
fn of_others(house: &House, path: &str) -> [u32; 2] {
    let path = house.path().join(path);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o007;
    [mode(&path), mode(path.parent().unwrap())]
}

#[test]
fn a_copy_is_never_more_accessible_than_its_source() {
    let house = House::with(&[(
        "files.yaml",
        "sources: { files: { files: { path: in } } }\n\
         pipelines: { main: { from: files, to: out } }\n\
         sinks: { out: { directory: { path: by_run } } }\n",
    )]);
    for (path, mode) in [("in", 0o755), ("in/secret", 0o700), ("open", 0o755)] {
        let path = house.path().join(path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for path in ["in/public.txt", "in/secret/file.txt"] {
        house.write(path, b"text");
        fs::set_permissions(house.path().join(path), fs::Permissions::from_mode(0o644)).unwrap();
    }
    run_well(&house, &["in/", "by_copy/"]);
    run_well(&house, &["in/secret/", "open/"]);
    house.run_well(&["run", "files.yaml"]);
    for to in ["by_copy", "by_run"] {
        assert_eq!(of_others(&house, &format!("{to}/public.txt")), [4, 5], "{to}");
        assert_eq!(of_others(&house, &format!("{to}/secret/file.txt")), [4, 0], "{to}");
    }
    // In a folder that lets others pass, the file itself refuses them.
    assert_eq!(of_others(&house, "open/file.txt"), [0, 5]);
}

#[test]
fn a_member_that_no_row_has_is_named_and_the_row_is_not_written_in_its_place() {
    let house = House::with(&[("a.jsonl", "{\"host\":1}\n")]);
    let parse = ["a.jsonl", "a.csv", "--parse", "json", "--encode", "csv"];
    let said = run_well(&house, &[&parse[..], &["--where", "hots = 1"]].concat());
    assert!(
        said.err.contains("copy.filter: no message had a field `hots`; did you mean `host`?"),
        "{said:?}"
    );
    let said = run_well(&house, &[&parse[..], &["--keep", "hots", "--existing", "replace"]].concat());
    assert!(said.err.contains("no message had a field `hots`; did you mean `host`?"), "{said:?}");
    assert_eq!(house.read("a.csv"), "hots\n\n");
}
