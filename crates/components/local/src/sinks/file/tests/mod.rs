//! Tests with real files in temporary folders.

mod continuing;
mod copied;
mod failures;
mod limits;
mod names;
mod pieces;
mod resending;
mod stamped;
mod taken;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, StringViewArray};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;
use thalweg_engine::testing::{batch, context, messages, options, refused, sink_conforms, write_all};
use thalweg_engine::{Component, Context, Journal, SinkConfig, Store};

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns options with `DIR` replaced by the folder.
    fn yaml(&self, yaml: &str) -> String {
        yaml.replace("DIR", self.0.path().to_str().unwrap())
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    /// Returns all files of the folder with their texts.
    fn files(&self) -> Vec<(String, String)> {
        fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(root, &path, found);
                } else {
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                    // A thread that compresses may have renamed it meanwhile.
                    let Ok(text) = fs::read(&path) else { continue };
                    found.push((name, String::from_utf8_lossy(&text).into_owned()));
                }
            }
        }
        let mut found = Vec::new();
        walk(self.0.path(), self.0.path(), &mut found);
        found.sort();
        found
    }

    fn sink(&self, yaml: &str, resumes: bool) -> Box<dyn Sink> {
        self.sink_in(yaml, &Context { resumes, ..context() })
    }

    fn sink_in(&self, yaml: &str, context: &Context) -> Box<dyn Sink> {
        options::<FileConfig>(&self.yaml(yaml)).build(context).unwrap()
    }
}

/// The context of runs with `--state`, which share a journal. The folder must be kept.
fn with_journal() -> (tempfile::TempDir, Context) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path()).unwrap());
    let journal = Some(Journal::new(store, "out"));
    (folder, Context { resumes: true, journal, ..context() })
}

fn files<const N: usize>(expected: [(&str, &str); N]) -> Vec<(String, String)> {
    expected.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// Creates messages with a column `k`.
fn keyed(rows: &[(&str, &str)]) -> Batch {
    let keys: ArrayRef = Arc::new(StringViewArray::from_iter_values(rows.iter().map(|(key, _)| key)));
    batch(rows.iter().map(|(_, message)| message))
        .set_fields([(Field::new("k", DataType::Utf8View, true), keys)])
        .unwrap()
}

async fn write(sink: &mut dyn Sink, batch: &Batch) -> Vec<(u32, String)> {
    let mut rejects = Rejects::default();
    sink.write(batch, &mut rejects).await.unwrap();
    rejects.take()
}

fn decompressed(path: &Path, compression: &str) -> String {
    let mut file = fs::File::open(path).unwrap();
    let mut text = String::new();
    match compression {
        "none" => file.read_to_string(&mut text).unwrap(),
        "gzip" => flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap(),
        _ => zstd::stream::read::Decoder::new(file).unwrap().read_to_string(&mut text).unwrap(),
    };
    text
}

/// Returns all messages in the folder, sorted.
fn all_messages(folder: &Folder) -> Vec<String> {
    let text = |name: &str| match fs::read(folder.path(name)).unwrap().starts_with(&[0x1f, 0x8b]) {
        true => decompressed(&folder.path(name), "gzip"),
        false => decompressed(&folder.path(name), "none"),
    };
    let files = folder.files();
    let mut lines: Vec<String> = files
        .iter()
        .flat_map(|(name, _)| text(name).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn it_conforms() {
    for rest in [
        "",
        ", compression: gzip, compression_level: 1",
        ", compression: zstd",
        ", fsync: flush, atomic: false, mode: 0600",
        ", rotate: { size: 10B, every: 1h, keep: 2 }",
        ", rotate: { size: 10B, at: '03:00', timestamp: '%Y-%m-%d_%H', digits: 2, keep_age: 1d, keep_bytes: 1MiB }",
        ", rotate: { size: 10B, compression: gzip, keep: 1 }, folder_mode: '0700'",
        ", rotate: { size: 10B, timestamp: '%H', numbers: if_taken, link: '{stem}-current{extension}' }",
        ", fsync: never, idle_timeout: 5m, delimiter: ''",
    ] {
        let folder = Folder::new();
        sink_conforms::<FileConfig>(&folder.yaml(&format!("{{ path: DIR/a/b/out.jsonl{rest} }}"))).await;
        sink_conforms::<FileConfig>(&folder.yaml(&format!("{{ path: 'DIR/{{meta.source}}'{rest} }}"))).await;
    }
}

#[tokio::test]
async fn lines_come_out_as_they_went_in() {
    let folder = Folder::new();
    let lines: Vec<String> = (0..50_000).map(|n| format!("{n} {}", "x".repeat(n % 300))).collect();
    let batches = lines.chunks(7_001).map(batch);
    write_all::<FileConfig>(&folder.yaml("path: DIR/out"), batches).await.unwrap();
    assert!(fs::read_to_string(folder.path("out")).unwrap() == lines.join("\n") + "\n");
}

#[tokio::test]
async fn a_file_is_called_part_until_it_is_finished() {
    let folder = Folder::new();
    folder.put("out", "old");
    let mut sink = folder.sink("path: DIR/out", false);
    sink.open(None).await.unwrap();
    assert_eq!(folder.files(), files([("out", "old"), ("out.part", "")]));
    write(&mut *sink, &batch(["new"])).await;
    assert_eq!(folder.files(), files([("out", "old"), ("out.part", "new\n")]));
    sink.finish().await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("out", "new\n")]));

    let mut sink = folder.sink("{ path: DIR/out, atomic: false }", false);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["newer"])).await;
    assert_eq!(folder.files(), files([("out", "newer\n")]));
}

#[tokio::test]
async fn a_run_without_messages_leaves_an_empty_file() {
    let folder = Folder::new();
    write_all::<FileConfig>(&folder.yaml("path: DIR/a/out"), []).await.unwrap();
    assert_eq!(folder.files(), files([("a/out", "")]));
}

#[tokio::test]
async fn what_exists_is_treated_as_on_exists_says() {
    for (existing, resumes, expected) in [
        ("auto", false, files([("out.txt", "new\n")])),
        ("auto", true, files([("out.txt", "old\nnew\n")])),
        ("replace", true, files([("out.txt", "new\n")])),
        ("append", false, files([("out.txt", "old\nnew\n")])),
        ("rename", false, files([("out-00001.txt", "new\n"), ("out.txt", "old\n")])),
    ] {
        for atomic in [true, false] {
            let folder = Folder::new();
            folder.put("out.txt", "old\n");
            let yaml = format!("{{ path: DIR/out.txt, existing: {existing}, atomic: {atomic} }}");
            let mut sink = folder.sink(&yaml, resumes);
            sink.open(None).await.unwrap();
            write(&mut *sink, &batch(["new"])).await;
            sink.finish().await.unwrap();
            assert_eq!(folder.files(), expected, "{yaml}");
        }
    }
    let folder = Folder::new();
    folder.put("out.txt", "old\n");
    let mut sink = folder.sink("{ path: DIR/out.txt, existing: error }", false);
    let error = sink.open(None).await.unwrap_err().full();
    assert!(error.contains("out.txt` exists. Remove it, or set `existing`"), "{error}");
    assert_eq!(folder.files(), files([("out.txt", "old\n")]));
}

#[tokio::test]
async fn a_header_begins_every_file_but_not_what_is_added_to_one() {
    let folder = Folder::new();
    let yaml = folder.yaml("{ path: 'DIR/{k}', encode: csv, existing: append }");
    for _ in 0..2 {
        write_all::<FileConfig>(&yaml, [keyed(&[("a", "1"), ("b", "2"), ("a", "3")])]).await.unwrap();
    }
    let expected = files([("a", "k\na\na\na\na\n"), ("b", "k\nb\nb\n")]);
    assert_eq!(folder.files(), expected);
}

#[tokio::test]
async fn nothing_is_added_to_a_file_with_other_columns() {
    let folder = Folder::new();
    folder.put("a", "k,n\nx,1\n");
    let yaml = folder.yaml("{ path: 'DIR/{k}', encode: csv, existing: append }");
    let error = write_all::<FileConfig>(&yaml, [keyed(&[("a", "1")])]).await.unwrap_err();
    let text = "a.continued.part` begins with the line `k,n`, and the columns of this run are `k`: list the columns \
                of the file in `fields` of `encode`, or write another file";
    assert!(error.full().ends_with(text), "{}", error.full());
}

#[test]
fn mistakes_are_found_before_anything_is_written() {
    let mistakes = |yaml: &str| -> Vec<&'static str> {
        options::<FileConfig>(yaml).check().iter().map(|mistake| mistake.option).collect()
    };
    assert!(mistakes("path: out.jsonl").is_empty());
    assert_eq!(mistakes("path: out/"), ["path"]);
    assert_eq!(mistakes("path: ''"), ["path"]);
    assert_eq!(mistakes("path: a.part"), ["path"]);
    assert!(mistakes("{ path: a.part, atomic: false }").is_empty());
    assert_eq!(mistakes("{ path: a, compression_level: 3 }"), ["compression_level"]);
    assert_eq!(mistakes("{ path: a, compression: gzip, compression_level: 10 }"), ["compression_level"]);
    assert_eq!(mistakes("{ path: a, rotate: {} }"), ["rotate"]);
    assert_eq!(mistakes("{ path: a, rotate: { size: 0, every: 0 } }"), ["rotate", "rotate"]);
    assert_eq!(mistakes("{ path: a, idle_timeout: 0 }"), ["idle_timeout"]);
    for (yaml, expected) in [
        (
            "{}",
            "The option `path` is missing. The path of the file (`out/all.jsonl`), or of one file for each value of a field and each time span (`out/{service}/{time:%Y-%m-%d}.jsonl`). For example `path: '{time:%Y-%m-%d} {level} {message}'`.",
        ),
        (
            "{ path: a, mode: 0999 }",
            "`mode` has the wrong form. The permissions of new files in octal, for example `\"0640\"`.",
        ),
        (
            "{ path: a, existing: maybe }",
            "`existing` cannot be `maybe`. It can be `auto`, `replace`, `append`, `error` or `rename`.",
        ),
        ("{ path: a, max_open_files: 0 }", "`max_open_files` must be at least 1, but it is `0`."),
    ] {
        assert_eq!(refused::<FileConfig>(yaml), expected, "{yaml}");
    }
}
