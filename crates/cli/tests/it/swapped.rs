//! Another user of a folder puts links in the place of what was listed, while it is read.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::common::House;

const FILES: usize = 1_000;
/// The rounds in which something must arrive, and the rounds in which the listing may meet a link.
const ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 60;

/// Creates a folder of files, a folder with the same names and secrets of the same sizes and times, and links
/// to the secrets beside them.
fn prepared() -> House {
    let house = House::with(&[]);
    let now = SystemTime::now();
    for (folder, text) in [("in/sub", "public\n"), ("secret", "SECRET\n")] {
        fs::create_dir_all(house.path().join(folder)).unwrap();
        for number in 0..FILES {
            let path = house.path().join(folder).join(format!("{number:04}"));
            fs::write(&path, text).unwrap();
            File::options().write(true).open(path).unwrap().set_modified(now).unwrap();
        }
    }
    fs::create_dir(house.path().join("links")).unwrap();
    for number in 0..FILES {
        let name = format!("{number:04}");
        symlink(house.path().join("secret").join(&name), house.path().join("links").join(&name)).unwrap();
    }
    symlink(house.path().join("secret"), house.path().join("links/sub")).unwrap();
    house
}

/// Exchanges files and their folder with links and back, until `is_over`.
fn swap(house: &Path, is_over: &AtomicBool) {
    let exchange = |one: &str, other: &str| {
        let (one, other) = (house.join(one), house.join(other));
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    };
    while !is_over.load(Relaxed) {
        for number in (0..FILES).step_by(7) {
            for _ in 0..2 {
                exchange(&format!("in/sub/{number:04}"), &format!("links/{number:04}"));
            }
            for _ in 0..2 {
                exchange("in/sub", "links/sub");
            }
        }
    }
}

/// Runs a command several times while files are exchanged. `result` returns what has arrived.
fn assert_no_secret(house: &House, arguments: &[&str], result: impl Fn(&Path) -> Vec<u8>) {
    let mut good = 0;
    for round in 0..MOST_ROUNDS {
        let is_over = AtomicBool::new(false);
        let said = std::thread::scope(|scope| {
            scope.spawn(|| swap(house.path(), &is_over));
            let said = house.run(arguments);
            is_over.store(true, Relaxed);
            said
        });
        let text = result(&house.path().join("out"));
        let count = |part: &[u8]| text.windows(part.len()).filter(|found| *found == part).count();
        assert_eq!(count(b"SECRET"), 0, "round {round}: {}", said.err);
        good += usize::from(count(b"public") > 0);
        let _ = fs::remove_dir_all(house.path().join("out"));
        if good == ROUNDS {
            return;
        }
    }
    panic!("{arguments:?} read nothing in most rounds");
}

/// Returns the content of all files below a folder.
fn all(folder: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => content.extend(all(&path)),
            false => content.extend(fs::read(path).unwrap()),
        }
    }
    content
}

fn configured(source: &str, sink: &str) -> House {
    let house = prepared();
    let main = "pipelines: { main: { from: in, to: out } }";
    let text = format!("sources: {{ in: {source} }}\n{main}\nsinks: {{ out: {sink} }}");
    house.write("c.yaml", text.as_bytes());
    house
}

#[test]
fn a_message_source_reads_no_link_in_the_place_of_a_listed_file() {
    let house = configured("{ file: { path: 'in/**/*' } }", "{ file: { path: out/all, existing: replace } }");
    assert_no_secret(&house, &["run", "c.yaml"], all);
}

#[test]
fn a_file_source_reads_no_link_in_the_place_of_a_listed_file() {
    let house = configured("{ files: { path: in } }", "{ directory: { path: out } }");
    assert_no_secret(&house, &["run", "c.yaml"], all);
}

#[cfg(feature = "stores")]
#[test]
fn a_copy_reads_no_link_in_the_place_of_a_listed_file() {
    let house = prepared();
    assert_no_secret(&house, &["copy", "in/", "out/"], all);
}
