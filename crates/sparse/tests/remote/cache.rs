use crate::server::{Fault, Server};
use crate::{content, open, quick};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use thalweg_sparse::{Cache, Fingerprint, OnChange, RemoteError, RemoteOptions, Span};

fn options(folder: &Path, limit: Option<u64>) -> RemoteOptions {
    RemoteOptions { cache: Some(Cache::new(folder, limit).unwrap()), ..quick() }
}

fn disk(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

fn files(folder: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_fetched_the_next_finds() {
    let bytes = content(50_000_000);
    let server = Server::start(bytes.clone());
    let folder = tempfile::tempdir().unwrap();
    {
        let file = open(&server, options(folder.path(), None)).await;
        file.read(40_000_000, 300_000).await.unwrap();
        file.read(5, 5).await.unwrap();
        assert_eq!(file.cache_error(), None);
    }
    server.forget();
    let file = open(&server, options(folder.path(), None)).await;
    assert_eq!(file.read(40_100_000, 100_000).await.unwrap(), bytes[40_100_000..40_200_000]);
    assert_eq!(file.read(0, 20).await.unwrap(), bytes[..20]);
    // The bytes before position 5 were not cached.
    assert_eq!(server.ranges(), [(0, 4)]);
    assert!(file.statistics().cached >= 100_000);
    let entries = Cache::new(folder.path(), None).unwrap().entries().unwrap();
    assert_eq!((entries.len(), entries[0].held), (1, 300_000 + 16_384 + 5));
    assert_eq!(entries[0].name, server.url());
    assert!(disk(folder.path()) < 500_000, "{} bytes of the disk", disk(folder.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_are_open_at_once_find_what_the_other_fetched() {
    let bytes = content(1_000_000);
    let server = Server::start(bytes.clone());
    let folder = tempfile::tempdir().unwrap();
    let first = open(&server, options(folder.path(), None)).await;
    let second = open(&server, options(folder.path(), None)).await;
    first.read(0, 100_000).await.unwrap();
    server.forget();
    assert_eq!(second.read(0, 100_000).await.unwrap(), bytes[..100_000]);
    second.read(500_000, 100_000).await.unwrap();
    assert_eq!(first.read(500_000, 100_000).await.unwrap(), bytes[500_000..600_000]);
    assert_eq!(server.ranges(), [(500_000, 599_999)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cached_of_another_state_is_not_used() {
    let server = Server::start(content(1_000_000));
    let folder = tempfile::tempdir().unwrap();
    let old = open(&server, options(folder.path(), None)).await;
    old.read(0, 100_000).await.unwrap();
    server.change(vec![3; 1_000_000], Some("\"two\""));
    let new = open(&server, options(folder.path(), None)).await;
    assert_eq!(new.read(0, 100_000).await.unwrap(), vec![3; 100_000]);
    // A reader of the old state leaves the new entry alone.
    let changed = old.read(500_000, 10).await.unwrap_err();
    assert!(matches!(changed, RemoteError::Changed { .. }), "{changed}");
    let third = open(&server, options(folder.path(), None)).await;
    assert_eq!(third.read(0, 100_000).await.unwrap(), vec![3; 100_000]);
    assert_eq!(third.statistics().fetched, 0);
    let restarting = RemoteOptions { on_change: OnChange::Restart, ..options(folder.path(), None) };
    let fourth = open(&server, restarting).await;
    fourth.read(0, 10).await.unwrap();
    server.change(vec![4; 1_000_000], Some("\"three\""));
    assert_eq!(fourth.read(200_000, 10).await.unwrap(), vec![4; 10]);
    assert_eq!(fourth.read(0, 10).await.unwrap(), vec![4; 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_says_nothing_about_its_state_is_not_trusted_the_next_time() {
    let server = Server::start(content(100_000));
    *server.state.etag.lock().unwrap() = None;
    *server.state.modified.lock().unwrap() = None;
    let folder = tempfile::tempdir().unwrap();
    open(&server, options(folder.path(), None)).await.read(0, 100_000).await.unwrap();
    server.change(vec![1; 100_000], None);
    assert_eq!(open(&server, options(folder.path(), None)).await.read(0, 10).await.unwrap(), vec![1; 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_is_fetched_again() {
    let bytes = content(400_000);
    let server = Server::start(bytes.clone());
    let folder = tempfile::tempdir().unwrap();
    open(&server, options(folder.path(), None)).await.read(0, 400_000).await.unwrap();
    let path = &files(folder.path(), "data")[0];
    let mut data = std::fs::read(path).unwrap();
    data[100_000] ^= 1;
    data.truncate(300_000);
    std::fs::write(path, data).unwrap();
    server.forget();
    assert_eq!(open(&server, options(folder.path(), None)).await.read(0, 400_000).await.unwrap(), bytes);
    assert_eq!(server.asked(), 65_536 + 400_000 - 262_144);
    server.forget();
    assert_eq!(open(&server, options(folder.path(), None)).await.read(0, 400_000).await.unwrap(), bytes);
    assert_eq!(server.ranges(), []);
    // An invalid journal.
    std::fs::write(&files(folder.path(), "ranges")[0], b"nonsense").unwrap();
    assert_eq!(open(&server, options(folder.path(), None)).await.read(0, 400_000).await.unwrap(), bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_cannot_be_written_costs_nothing_but_itself() {
    let bytes = content(100_000);
    let server = Server::start(bytes.clone());
    let folder = tempfile::tempdir().unwrap();
    let file = open(&server, options(folder.path(), None)).await;
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(file.read(0, 100_000).await.unwrap(), bytes);
    let why = "No such file or directory (os error 2)";
    let expected = format!("the cache `{}` fails: {why}", folder.path().display());
    assert_eq!(file.cache_error().unwrap(), expected);
}

#[test]
fn the_limit_is_kept_and_the_least_recently_used_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), Some(2 << 20)).unwrap();
    let state =
        |number: u64| Fingerprint { length: 100 << 20, etag: Some(number.to_string()), modified: None };
    let fill = |position: u64, into: &mut [u8]| {
        into.fill((position >> 16) as u8);
        true
    };
    for number in 0..20 {
        let file = cache.open(&number.to_string(), "x", &state(number));
        for piece in 0..4 {
            file.write(Span::new(piece * (10 << 20), 128 << 10), 0, fill);
            assert!(disk(folder.path()) <= 2 << 20, "{}", disk(folder.path()));
        }
        // The first file is used again and again.
        let mut found = 0;
        cache.open("0", "x", &state(0)).read(&[Span::new(0, 50 << 20)], 0, |_, bytes| found += bytes.len());
        assert_eq!(found, 512 << 10, "at {number}");
        assert_eq!(file.cache_error(), None);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(cache.entries().unwrap().len() >= 3);

    // A file that is larger than the limit keeps its most recently used pieces.
    let file = cache.open("large", "large", &state(99));
    for piece in 0..100 {
        file.write(Span::new(piece << 16, 64 << 10), 0, fill);
        file.read(&[Span::new(0, 10)], 0, |position, _| assert_eq!(position, 0));
        assert!(disk(folder.path()) <= 2 << 20, "{} at {piece}", disk(folder.path()));
    }
    let mut found = Vec::new();
    cache.open("large", "large", &state(99)).read(&[Span::new(0, 100 << 16)], 0, |position, bytes| {
        assert!(bytes.iter().all(|byte| *byte == (position >> 16) as u8));
        found.push(position >> 16);
    });
    assert!(
        found.contains(&0) && found.contains(&99) && !found.contains(&1) && found.len() > 20,
        "{found:?}"
    );
    assert_eq!(file.cache_error(), None);
}

/// The program of the processes in the next test: read here and there until killed, and compare.
#[test]
#[ignore = "is run by the next test, as a process of its own"]
fn a_process_that_reads() {
    let (url, folder) = (std::env::var("TEST_URL").unwrap(), std::env::var("TEST_FOLDER").unwrap());
    let bytes = content(20_000_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let origin = thalweg_sparse::Origin::from_url(&url).unwrap();
        let options = options(Path::new(&folder), Some(4 << 20));
        let file = thalweg_sparse::RemoteFile::open(origin, options).await.unwrap();
        let mut number = u64::from(std::process::id());
        loop {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let position = (number >> 33) % 19_000_000;
            let length = (number >> 20) % 300_000;
            let read = file.read(position, length as usize).await.unwrap();
            if read != bytes[position as usize..][..length as usize] {
                println!("WRONG BYTES at {position}");
                return;
            }
            file.held().clear();
            if let Some(cache_error) = file.cache_error() {
                println!("WRONG: {cache_error}");
                return;
            }
        }
    });
}

fn process(server: &Server, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cache::a_process_that_reads", "--ignored", "--nocapture"])
        .env("TEST_URL", server.url())
        .env("TEST_FOLDER", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn processes_that_share_a_cache_may_be_killed_at_any_moment() {
    let bytes = content(20_000_000);
    let server = Server::start(bytes.clone());
    server.always(Fault::None);
    let folder = tempfile::tempdir().unwrap();
    let mut processes: Vec<Child> = (0..3).map(|_| process(&server, folder.path())).collect();
    let mut number = 1u64;
    let mut ends = Vec::new();
    for round in 0..25 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros(20_000 + (number >> 40) % 150_000));
        let at = round % processes.len();
        processes[at].kill().unwrap();
        let ended = std::mem::replace(&mut processes[at], process(&server, folder.path()));
        ends.push(ended.wait_with_output().unwrap().stdout);
    }
    for mut left in processes {
        left.kill().unwrap();
        ends.push(left.wait_with_output().unwrap().stdout);
    }
    for end in ends {
        let end = String::from_utf8_lossy(&end).into_owned();
        assert!(!end.contains("WRONG"), "{end}");
    }
    // The remaining entry is correct and usable.
    let cache = Cache::new(folder.path(), Some(4 << 20)).unwrap();
    let entry = cache.entries().unwrap().remove(0);
    assert!(entry.held > 0 && disk(folder.path()) < 8 << 20, "{entry:?}");
    let mut found = 0;
    let file = cache.open(&server.url(), "x", &entry.fingerprint);
    file.read(&[Span::new(0, 20_000_000)], 0, |position, piece| {
        assert!(piece == &bytes[position as usize..][..piece.len()], "the piece at {position}");
        found += piece.len() as u64;
    });
    println!(
        "{found} of {} bytes that are noted are there, {} bytes of the disk",
        entry.held,
        disk(folder.path())
    );
    assert!(found > 0);
}
