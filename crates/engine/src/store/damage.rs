//! Tests of a state directory in which one file is damaged.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;

/// Everything in a store.
fn contents(store: &Store) -> Result<String, Error> {
    let letters: Vec<_> = store.letters().collect::<Result<_, _>>()?;
    let journal: Vec<_> = store.journal("out", "").collect::<Result<_, _>>()?;
    Ok(format!("{:?} {:?} {journal:?} {letters:?}", store.positions("in")?, store.sink_state("out")?))
}

fn write_something(store: &Store, round: u64) {
    let position = |name: &str| ("in".into(), Arc::from(name), Some(json!({ "offset": round })));
    store.save(&[position("a"), position("b")], &[("out".into(), json!({ "length": round }))], &[]).unwrap();
    store.note("out", &format!("part-{round}"), Some(&json!("tag"))).unwrap();
    let letters = vec![tests::letter(b"is not JSON"); 700];
    store.add_letters(&letters, &DeadLetterLimits::default()).unwrap();
}

/// The files below a directory with their contents, without the zeros at the end of journals.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(&below).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn restored(files: &BTreeMap<PathBuf, Vec<u8>>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("keyspaces")).unwrap();
    for (name, content) in files {
        fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

type Damage = (&'static str, fn(&mut Vec<u8>) -> bool);

/// Returns false if the file is to be removed.
const DAMAGES: [Damage; 5] = [
    ("emptied", |content| {
        content.clear();
        true
    }),
    ("cut in half", |content| {
        content.truncate(content.len() / 2);
        true
    }),
    ("removed", |_| false),
    ("changed at its start", |content| {
        content.iter_mut().take(1).for_each(|byte| *byte ^= 1);
        true
    }),
    ("changed in its middle", |content| {
        let middle = content.len() / 2;
        content.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 0x40);
        true
    }),
];

fn check_each_damage(whole: &BTreeMap<PathBuf, Vec<u8>>, expected: &str) {
    for name in whole.keys() {
        for (what, damage) in DAMAGES {
            let mut damaged = whole.clone();
            let content = damaged.get_mut(name).unwrap();
            if !damage(content) {
                damaged.remove(name);
            }
            if damaged == *whole {
                continue;
            }
            let case = format!("{} {what}", name.display());
            let folder = restored(&damaged);
            match Store::open(folder.path()) {
                Ok(store) => match contents(&store) {
                    Ok(found) => {
                        assert!(found == expected, "{case}: {} bytes of {}", found.len(), expected.len())
                    }
                    Err(error) => check_message(&error.full(), folder.path(), &case),
                },
                Err(error) => {
                    check_message(&error.full(), folder.path(), &case);
                    let text = error.full();
                    // A killed process may have written tables that the inventory does not have.
                    let is_named = text.contains(&name.display().to_string());
                    let is_new_table = name.to_string_lossy().contains("/tables/");
                    assert!(is_named || is_new_table, "{case}: {text}");
                    assert!(files(folder.path()) == damaged, "{case}: the directory was changed");
                }
            }
        }
    }
}

fn check_message(text: &str, folder: &Path, case: &str) {
    assert!(text.contains(&folder.display().to_string()), "{case}: {text}");
    assert!(
        text.contains("from a backup") && !text.contains("Error") && !text.contains('{'),
        "{case}: {text}"
    );
}

/// The files of a store that was closed, and of one whose process was killed, with what is in them.
fn made() -> [(BTreeMap<PathBuf, Vec<u8>>, String); 2] {
    let folder = tempfile::tempdir().unwrap();
    // More than one portion of letters.
    (0..3).for_each(|round| write_something(&Store::open(folder.path()).unwrap(), round));
    let store = Store::open(folder.path()).unwrap();
    write_something(&store, 3);
    let killed = (files(folder.path()), contents(&store).unwrap());
    drop(store);
    [killed.clone(), (files(folder.path()), killed.1)]
}

#[test]
fn a_damaged_file_is_named_and_nothing_is_changed_or_all_is_there() {
    for (whole, expected) in made() {
        let folder = restored(&whole);
        assert!(contents(&Store::open(folder.path()).unwrap()).unwrap() == expected);
        check_each_damage(&whole, &expected);
    }
}

#[test]
fn a_directory_of_an_older_version_is_accepted_and_what_was_removed_from_it_is_missed() {
    let [_, (mut whole, expected)] = made();
    whole.remove(Path::new("inventory"));
    assert!(contents(&Store::open(restored(&whole).path()).unwrap()).unwrap() == expected);
    for name in ["version", "0.jnl", "keyspaces/0/current"] {
        let mut damaged = whole.clone();
        damaged.remove(Path::new(name)).unwrap();
        let folder = restored(&damaged);
        let text = Store::open(folder.path()).err().unwrap_or_else(|| panic!("{name}")).full();
        assert!(text.contains(&format!("{name}` is missing")), "{text}");
        assert!(files(folder.path()) == damaged, "{name}");
    }
    whole.retain(|name, _| !name.starts_with("keyspaces"));
    let folder = restored(&whole);
    let text = Store::open(folder.path()).err().expect("no keyspace is left").full();
    assert!(text.contains("keyspaces/0` is missing") && files(folder.path()) == whole, "{text}");
}

#[test]
fn a_damaged_inventory_is_reported_and_a_torn_one_is_as_good_as_none() {
    let inventory = Path::new("inventory");
    let damaged = |whole: &BTreeMap<PathBuf, Vec<u8>>, change: &dyn Fn(&mut Vec<u8>)| {
        let mut whole = whole.clone();
        change(whole.get_mut(inventory).unwrap());
        let folder = restored(&whole);
        let error = Store::open(folder.path()).err().map(|error| error.full());
        assert!(error.is_none() || files(folder.path()) == whole, "the directory was changed");
        error.map(|error| error.replace(&folder.path().display().to_string(), "F"))
    };
    let changed = "the state in `F` is damaged: `F/inventory` was changed. Nothing was processed, and the directory was \
                   not changed. Restore the directory from a backup. Or move it away to start over: its checkpoints and \
                   dead letters are then not used, and all input is processed again";
    for (whole, _) in made() {
        for place in [0, 20, 30, 100] {
            let error = damaged(&whole, &|record| record[place] ^= 1);
            assert_eq!(error.as_deref(), Some(changed), "at {place}");
        }
        assert_eq!(damaged(&whole, &|record| record.truncate(100)).as_deref(), Some(changed));
        let empty = damaged(&whole, &|record| record.clear()).unwrap();
        assert!(empty.contains("`F/inventory` is empty"), "{empty}");
        // A record of two pages, of which a killed process has written one.
        let torn = |record: &mut Vec<u8>| *record = b"thalweg-inventory-1 5000 12ab\n{".to_vec();
        assert_eq!(damaged(&whole, &torn), None);
        let closed = |record: &mut Vec<u8>| *record = b"thalweg-inventory-1 5000 12ab closed\n{".to_vec();
        assert_eq!(damaged(&whole, &closed).as_deref(), Some(changed));
    }
}

#[test]
fn a_pipe_or_a_link_in_the_place_of_a_file_is_reported_and_does_not_block() {
    let [_, (whole, _)] = made();
    let fifo = |path: &Path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    for name in ["owner", "inventory", "lock", "version", "0.jnl", "keyspaces/0/current", "owner.part"] {
        for (kind, what) in [("pipe", "not a file, but a pipe"), ("link", "a symbolic link")] {
            let folder = restored(&whole);
            let (path, aside) = (folder.path().join(name), folder.path().join("../aside"));
            if path.exists() {
                fs::remove_file(&path).unwrap();
            }
            match kind {
                "pipe" => fifo(&path),
                _ => std::os::unix::fs::symlink(aside, &path).unwrap(),
            }
            let owner = Owner::named("x".to_owned());
            let error = Store::open_for(folder.path(), Some(&owner)).err().unwrap().full();
            let expected = format!("`{}` is {what}", path.display());
            assert!(error.contains(&expected) && error.contains("remove it"), "{name}: {error}");
            assert!(!folder.path().join("../aside").exists());
        }
    }
}

#[test]
fn what_a_killed_process_wrote_after_its_last_record_is_no_damage() {
    let [(mut killed, expected), _] = made();
    let (_, journal) =
        killed.iter_mut().rfind(|(name, _)| name.extension().is_some_and(|e| e == "jnl")).unwrap();
    // The start of a record, and the zeros of a journal that was extended.
    journal.extend([1, 2, 3]);
    journal.extend([0; 70_000]);
    assert!(contents(&Store::open(restored(&killed).path()).unwrap()).unwrap() == expected);
}

#[test]
fn only_this_user_can_enter_a_state_directory() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(&folder.path().join("a/state")).unwrap());
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("a/state"), 0o700);
}
