//! Runs that resume with copies of the files and the state, as from a backup.

use super::*;

/// A message of 40 bytes with its line end, of which half cannot be compressed.
fn message(number: usize) -> String {
    let text = xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
    format!("{{\"number\":{number:02},\"text\":\"{text:016x}\"}}")
}

fn numbered(numbers: std::ops::Range<usize>) -> Batch {
    batch(numbers.map(message).collect::<Vec<_>>())
}

fn lines(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(message).collect()
}

/// Gives each file of the folder another identity, as `cp -r` does.
fn copy(folder: &Folder) {
    for (name, _) in folder.files() {
        let path = folder.path(&name);
        let copy = folder.path("copy");
        fs::copy(&path, &copy).unwrap();
        fs::rename(&copy, &path).unwrap();
    }
}

#[tokio::test]
async fn a_copied_file_is_cut_to_the_checkpoint() {
    for (rest, finishes) in [
        (", atomic: false", false),
        (", atomic: false", true),
        ("", false),
        ("", true),
        (", compression: gzip", true),
        (", rotate: { size: 2KiB }", true),
        (", rotate: { size: 2KiB }", false),
    ] {
        let folder = Folder::new();
        let (_store, context) = with_journal();
        let yaml = format!("{{ path: DIR/out{rest} }}");
        let mut sink = folder.sink_in(&yaml, &context);
        sink.open(None).await.unwrap();
        write(&mut *sink, &numbered(0..20)).await;
        sink.flush().await.unwrap();
        let saved = sink.state();
        write(&mut *sink, &numbered(20..24)).await;
        sink.flush().await.unwrap();
        if finishes {
            sink.finish().await.unwrap();
        }
        drop(sink);
        copy(&folder);
        // A run that is killed before its first checkpoint changes nothing.
        for _ in 0..2 {
            let mut sink = folder.sink_in(&yaml, &context);
            sink.open(saved.clone()).await.unwrap();
            write(&mut *sink, &numbered(20..30)).await;
            sink.finish().await.unwrap();
            drop(sink);
            copy(&folder);
        }
        assert_eq!(all_messages(&folder), lines(0..30), "{rest} {finishes}");
    }
}

#[tokio::test]
async fn a_file_of_another_program_with_the_name_of_a_copy_is_not_cut() {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let yaml = "{ path: DIR/out, atomic: false }";
    let mut sink = folder.sink_in(yaml, &context);
    sink.open(None).await.unwrap();
    write(&mut *sink, &numbered(0..5)).await;
    let saved = sink.state();
    drop(sink);
    // While the first file exists, so that the other one is not created with its inode in the same moment.
    let foreign: String = (50..70).map(|number| message(number) + "\n").collect();
    folder.put("foreign", &foreign);
    fs::rename(folder.path("foreign"), folder.path("out")).unwrap();
    let mut sink = folder.sink_in(yaml, &context);
    sink.open(saved).await.unwrap();
    write(&mut *sink, &numbered(5..6)).await;
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("out", format!("{foreign}{}\n", message(5)).as_str())]));
}

/// The checkpoint had the checksum of the other file, so that the next run cut it.
#[tokio::test]
async fn a_file_that_took_the_name_of_one_that_was_moved_away_is_not_cut() {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let yaml = "{ path: DIR/out, atomic: false }";
    let mut sink = folder.sink_in(yaml, &context);
    sink.open(None).await.unwrap();
    write(&mut *sink, &numbered(0..5)).await;
    fs::rename(folder.path("out"), folder.path("moved")).unwrap();
    let foreign: String = (50..70).map(|number| message(number) + "\n").collect();
    folder.put("out", &foreign);
    write(&mut *sink, &numbered(5..6)).await;
    let saved = sink.state();
    drop(sink);
    let mut sink = folder.sink_in(yaml, &context);
    sink.open(saved).await.unwrap();
    write(&mut *sink, &numbered(6..7)).await;
    sink.finish().await.unwrap();
    let moved: String = (0..6).map(|number| message(number) + "\n").collect();
    let found = files([("moved", moved.as_str()), ("out", format!("{foreign}{}\n", message(6)).as_str())]);
    assert_eq!(folder.files(), found);
}

#[tokio::test]
async fn a_copy_of_a_piece_after_the_checkpoint_is_refused_and_not_removed() {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let yaml = "{ path: DIR/out, rotate: { size: 100B } }";
    let mut sink = folder.sink_in(yaml, &context);
    sink.open(None).await.unwrap();
    write(&mut *sink, &numbered(0..2)).await;
    let saved = sink.state();
    for number in 2..8 {
        write(&mut *sink, &numbered(number..number + 1)).await;
    }
    drop(sink);
    copy(&folder);
    let before = folder.files();
    let error = folder.sink_in(yaml, &context).open(saved.clone()).await.unwrap_err().full();
    assert!(error.contains("out-00002` has the name of a file that the former run began"), "{error}");
    assert_eq!(folder.files(), before);
    for (name, _) in before {
        if !name.starts_with("out-00001") {
            fs::remove_file(folder.path(&name)).unwrap();
        }
    }
    let mut sink = folder.sink_in(yaml, &context);
    sink.open(saved).await.unwrap();
    write(&mut *sink, &numbered(2..8)).await;
    sink.finish().await.unwrap();
    assert_eq!(all_messages(&folder), lines(0..8));
}
