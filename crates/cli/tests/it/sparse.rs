//! `thalweg sparse`, as a user runs it.

use crate::common::House;
use std::process::Command;

fn content(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at ^ at >> 8).wrapping_mul(31) as u8).collect()
}

#[test]
fn ranges_are_written_one_after_the_other_and_what_was_fetched_is_told() {
    let house = House::with(&[]);
    let bytes = content(5_000_000);
    house.write("large.bin", &bytes);
    let ranges = ["--range", "1MiB:1048600", "--range", "-10:", "--range", ":5"];
    let said =
        house.run_well(&[&["sparse", "read", "large.bin", "-o", "parts", "--log"], &ranges[..]].concat());
    let parts = std::fs::read(house.path().join("parts")).unwrap();
    assert_eq!(parts, [&bytes[1_048_576..1_048_600], &bytes[4_999_990..], &bytes[..5]].concat());
    assert!(said.err.starts_with("state") && said.err.matches("read ").count() == 3, "{}", said.err);
    assert!(said.err.contains("fetched 32.0 KiB of 4.77 MiB (0.656 %) in 4 requests"), "{}", said.err);

    let whole = house.command(&["sparse", "read", "large.bin", "--quiet"]).output().unwrap();
    assert!(whole.stdout == bytes && whole.stderr.is_empty());
}

#[test]
fn the_cache_serves_the_next_run_and_shows_what_it_holds() {
    let house = House::with(&[]);
    house.write("large.bin", &content(3_000_000));
    let read = ["sparse", "read", "large.bin", "-o", "part", "--range", "1000000:1500000", "--cache", "kept"];
    house.run_well(&read);
    let said = house.run_well(&read);
    assert!(
        said.err.contains("fetched 0 B") && said.err.contains("488 KiB came from the cache"),
        "{}",
        said.err
    );
    let shown = house.run_well(&["sparse", "stat", "kept"]).out;
    assert!(shown.starts_with("1 file, ") && shown.contains("488 KiB of 2.86 MiB (17 %)"), "{shown}");
    let shown = house.run_well(&["sparse", "stat", "large.bin"]).out;
    assert!(
        shown.contains("length    2.86 MiB (3,000,000 bytes)") && shown.contains("ranges    yes"),
        "{shown}"
    );
}

#[test]
fn an_unreadable_file_is_reported_in_a_sentence() {
    let house = House::with(&[("short", "12345")]);
    for (arguments, code, wanted) in [
        (&["ftp://x/y"][..], 2, "`ftp` is not among"),
        (&["none"], 3, "there is no"),
        (&["short", "--range", "0:6"], 3, "not within the file, which has 5 bytes"),
        (&["short", "--range", "5"], 2, "FROM:TO"),
        (&["short", "--max-cache-bytes", "1GiB"], 2, "--cache"),
    ] {
        let said = house.run(&[&["sparse", "read"], arguments].concat());
        assert!(said.code == Some(code) && said.err.contains(wanted), "{arguments:?}: {said:?}");
    }
}

#[test]
fn the_example_reads_one_member_of_a_zip() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sparse/one-member.py");
    match Command::new("python3").args([script, env!("CARGO_BIN_EXE_thalweg")]).output() {
        Err(error) => println!("skipped: there is no python3: {error}"),
        Ok(ended) => assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr)),
    }
}
