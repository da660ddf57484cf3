//! The results, errors and counters of a sparse file, beyond the property tests.

use std::time::{Duration, SystemTime};
use thalweg_sparse::{Clock, Error, Options, Overlap, Span, SparseFile, SparseFileSystem};

fn file() -> SparseFile {
    SparseFile::new("file", 12.5)
}

#[test]
fn a_new_file_has_nothing_but_its_origin() {
    let file = file();
    assert_eq!((file.id(), file.modified()), ("file", 12.5));
    assert!(file.is_modified_at(12.5) && !file.is_modified_at(12.500001));
    assert!(file.is_empty() && !file.has(0, 0) && !file.has(0, 1));
    assert_eq!((file.bytes(), file.end(), file.count_blocks()), (0, 0, 0));
    assert_eq!(file.need(5, 10, 0), [Span::new(5, 10)]);
    assert_eq!(file.need(5, 10, 100), [Span::new(5, 100)]);
    assert!(file.heap_bytes() < 1000, "{}", file.heap_bytes());
}

#[test]
fn needs_are_made_longer_only_beyond_what_was_asked() {
    let file = file();
    file.write(10, b"abcd").unwrap();
    file.write(20, b"abcd").unwrap();
    let apart = [Span::new(0, 10), Span::new(14, 6), Span::new(24, 16)];
    assert_eq!(file.need(0, 40, 0), apart);
    assert_eq!(file.need(0, 40, 40), apart);
    assert_eq!(file.need(0, 40, 41), [Span::new(0, 41)]);
    assert_eq!(file.need(12, 4, 5), [Span::new(14, 5)]);
    let many = [Span::new(30, 4), Span::new(0, 4), Span::new(2, 6), Span::new(12, 4)];
    assert_eq!(file.need_many(&many, 5), [Span::new(0, 8), Span::new(14, 5), Span::new(30, 5)]);
}

#[test]
fn an_overwrite_that_differs_names_the_first_byte_and_changes_nothing() {
    let file = file();
    let start = (1 << 16) - 4;
    file.write(start, b"abcd").unwrap();
    file.write(start + 6, b"ghij").unwrap();
    let before = (file.blocks(), file.counters());
    let error = file.write(start - 2, b"yzabcdefgXij").unwrap_err();
    assert_eq!(error, Error::Differs { position: start + 7, held: b'h', given: b'X' });
    assert_eq!(
        error.to_string(),
        "the byte at 65539 is held as 0x68 and given as 0x58: the file has changed, or this is not what belongs there"
    );
    assert_eq!((file.blocks(), file.counters()), before);
    assert_eq!(file.read_to_vec(start + 6, 4).unwrap(), b"ghij");
    file.write(start - 2, b"yzabcdefghij").unwrap();
    assert_eq!(file.blocks(), [Span::new(start - 2, 12)]);
}

#[test]
fn old_bytes_stay_or_go_as_told() {
    for (overlap, expected) in [
        (Overlap::Replace, b"1234567890"),
        (Overlap::Keep, b"1bc4567hi0"),
        (Overlap::KeepFirst, b"1234567890"),
    ] {
        let file = file();
        file.write(1, b"bc").unwrap();
        file.write(7, b"hi").unwrap();
        file.write_with(0, b"1234567890", overlap).unwrap();
        assert_eq!(file.read_to_vec(0, 10).unwrap(), expected, "{overlap:?}");
    }
    let file = file();
    file.write(0, b"abc").unwrap();
    file.write(6, b"ghi").unwrap();
    file.write_with(1, b"23456789", Overlap::KeepFirst).unwrap();
    assert_eq!(file.read_to_vec(0, 9).unwrap(), b"abc456789");
}

#[test]
fn a_read_of_what_is_missing_says_what_to_fetch() {
    let file = file();
    file.write(10, b"abcd").unwrap();
    let error = file.read(8, &mut [0; 5]).unwrap_err();
    assert_eq!(error, Error::Missing { wanted: Span::new(8, 5), missing: Span::new(8, 2) });
    assert_eq!(error.to_string(), "the 5 bytes at 8 are not all held: the 2 at 8 are missing");
    // A length that exceeds any memory is rejected without an allocation.
    let wanted = usize::MAX / 4;
    assert_eq!(
        file.read_to_vec(10, wanted),
        Err(Error::Missing {
            wanted: Span::new(10, wanted as u64),
            missing: Span::new(14, wanted as u64 - 4)
        })
    );
    assert_eq!(file.counters().reads, 0);
    file.read(14, &mut []).unwrap();
    let beyond = Error::Missing { wanted: Span::new(15, 0), missing: Span::new(15, 0) };
    assert_eq!(file.read(15, &mut []), Err(beyond));
}

#[test]
fn nothing_lies_beyond_the_last_position() {
    let file = file();
    let last = u64::MAX - 1;
    file.write(last, b"z").unwrap();
    assert_eq!(file.write(last, b"zz"), Err(Error::TooFar { position: last, length: 2 }));
    assert_eq!(file.read(u64::MAX, &mut [0]), Err(Error::TooFar { position: u64::MAX, length: 1 }));
    assert!(file.has(last, 1) && !file.has(last, 2) && !file.has(11, u64::MAX - 4));
    assert_eq!(file.blocks(), [Span::new(last, 1)]);
    assert_eq!(file.end(), u64::MAX);
    assert_eq!(file.need(0, u64::MAX, 0), [Span::new(0, last)]);
    assert_eq!(file.erase_block(last), Ok(1));
}

#[test]
fn what_succeeds_is_counted() {
    let file = SparseFile::with_options("file", 0.0, Options { clock: Clock::Exact, ..Options::default() });
    assert_eq!((file.counters().last_read, file.counters().last_write), (None, None));
    let before = SystemTime::now() - Duration::from_micros(1);
    file.write(0, b"abcd").unwrap();
    file.write(2, b"cdef").unwrap();
    file.write(9, b"").unwrap();
    file.write(100_000, &[0; 200_000]).unwrap();
    file.read(1, &mut [0; 5]).unwrap();
    file.read(100_000, &mut vec![0; 150_000]).unwrap();
    assert_eq!(file.erase(2, 200_000), 4 + 100_002);
    let counters = file.counters();
    assert_eq!((counters.writes, counters.bytes_written), (3, 200_008));
    assert_eq!((counters.reads, counters.bytes_read), (2, 150_005));
    assert_eq!((counters.blocks_erased, counters.bytes_erased), (2, 100_006));
    assert!(counters.last_read.is_some_and(|at| at >= before && at <= SystemTime::now()));
    assert!(counters.last_write.is_some_and(|at| at >= before && at <= SystemTime::now()));
    file.clear();
    assert_eq!(file.counters(), thalweg_sparse::Counters::default());
    assert!(file.is_empty());
}

#[test]
fn a_file_system_keeps_files_by_id() {
    let files = SparseFileSystem::new(Options { overlap: Overlap::Replace, ..Options::default() });
    files.insert("a", 1.0).unwrap().write(0, b"abc").unwrap();
    files.insert("b", 2.0).unwrap().write(7, b"de").unwrap();
    files.get("a").unwrap().write(9, b"x").unwrap();
    assert_eq!(files.insert("a", 3.0).unwrap_err(), Error::Exists { id: "a".into() });
    assert_eq!(files.get("c").unwrap_err().to_string(), "there is no file `c`");
    assert_eq!((files.len(), files.bytes(), files.count_blocks()), (2, 6, 3));
    assert!(files.heap_bytes() > 6);
    let mut ids = files.ids();
    ids.sort();
    assert_eq!(ids, ["a", "b"]);
    files.remove("a").unwrap();
    assert!(!files.has("a") && files.has("b"));
    assert_eq!(files.remove("a").unwrap_err(), Error::Unknown { id: "a".into() });
}
