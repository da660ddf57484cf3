//! The file transforms: each before the sink `directory`, whose files are then read back.

use std::io;
use std::path::Path;

use thalweg_engine::Flow;

use super::{feeds, outlets};
use crate::feed::{Feed, Prepared};
use crate::oracle::Replica;
use crate::outlet::{Outlet, Output};
use crate::program::Program;
use crate::read;
use crate::records::{Form, Records};

/// A PNG of one red pixel.
const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xDE, 0x00,
    0x00, 0x00, 0x0C, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9C, 0x63, 0xF8, 0xCF, 0xC0, 0x00, 0x00, 0x03, 0x01,
    0x01, 0x00, 0xC9, 0xFE, 0x92, 0xEF, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE, 0x42, 0x60,
    0x82,
];

/// Copies each file.
const COPY: &str = "exec: { command: /bin/sh, args: ['-c', 'mkdir -p work && cp \"$1\" \"work/$2\"', sh, '{path}', \
                    '{name}'], output: 'work/{name}', output_cleanup: remove }";

/// Returns the file transforms of any file: a source of several files through each into a folder.
pub fn all() -> Vec<Outlet> {
    let case = |component: &'static str, steps: &'static [&'static str]| Outlet {
        name: component,
        component,
        takes: Flow::Files,
        steps,
        sinks: "out: { directory: { path: out } }",
        ..outlets::file()
    };
    let with_copy = |component, steps| Outlet { read: Some(with_copy), ..case(component, steps) };
    vec![
        case("check_size", &["check_size: { min_bytes: 1B }"]),
        case("check_time", &["check_time: { min_modified: '2000-01-01T00:00:00Z' }"]),
        case("check_type", &["check_type: { deny: ['image/*'] }"]),
        case("compress", &["compress: { format: gzip }"]),
        case("decompress", &["compress: { format: zstd }", "decompress: {}"]),
        case("exec", &[COPY]),
        case("hash", &["hash: { sidecars: sums }"]),
        case("rename_file", &["rename_file: { to: 'x{original_stem}.jsonl' }"]),
        case("slice", &["slice: { ranges: ['0:'] }"]),
        with_copy("upload", &["upload: { url: copy/ }"]),
        with_copy("write", &["write: { path: copy }"]),
        Outlet { read: Some(untouched), ..case("forget", &["forget: {}"]) },
        Outlet { read: Some(removed), ..case("remove", &["remove: {}"]) },
    ]
}

/// Returns the file transforms of pictures.
pub fn of_pictures() -> Vec<Outlet> {
    let case = |component: &'static str, steps: &'static [&'static str]| Outlet {
        name: component,
        component,
        takes: Flow::Files,
        steps,
        sinks: "out: { directory: { path: out } }",
        keeps_order: false,
        read: Some(pictures),
        ..outlets::file()
    };
    vec![
        case("convert_image", &["convert_image: { to: webp }"]),
        case("strip_metadata", &["strip_metadata: {}"]),
    ]
}

/// Returns a source of a picture for each record.
pub fn picture_feed() -> Feed {
    Feed {
        name: "pictures",
        prepare: picture_files,
        memory: "16MiB",
        most: 25,
        partitions: 1,
        ..feeds::files()
    }
}

fn picture_files(program: &Program, records: Records) -> io::Result<Prepared> {
    (0..records.count).try_for_each(|number| program.write(&format!("in/{number:05}.png"), PIXEL))?;
    Ok(Prepared::of("files: { path: in }"))
}

/// A record for each whole picture in `out`: the one whose number is its name.
fn pictures(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    let mut piece = Vec::new();
    for path in read::files(&output.program.path("out"))?.iter().filter(|path| !read::is_unfinished(path)) {
        let content = std::fs::read(path)?;
        let is_whole = content.starts_with(b"RIFF") && content.len() > 12
            || content.starts_with(b"\x89PNG") && content.ends_with(b"IEND\xAE\x42\x60\x82");
        piece.extend(if is_whole { record_of(path) } else { b"torn\n".to_vec() });
    }
    Ok(vec![vec![piece]])
}

fn record_of(path: &Path) -> Vec<u8> {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let records = Records::new(u64::MAX);
    stem.parse().map_or(b"torn\n".to_vec(), |number| (records.text(number, Form::Json) + "\n").into_bytes())
}

fn with_copy(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    let folders = ["out", "copy"].into_iter();
    folders
        .map(|folder| {
            Ok(vec![read::joined(read::contents(&output.program.path(folder), output.also_unfinished)?)])
        })
        .collect()
}

/// The input, which must be as it was, if nothing was written.
fn untouched(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    let written = read::files(&output.program.path("out"))?.len();
    let input = read::contents(&output.program.path("in"), false)?;
    Ok(vec![if written == 0 { vec![read::joined(input)] } else { Vec::new() }])
}

/// The records of the input files that are gone.
pub fn removed(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    let files =
        (0..feeds::FILES).filter(|file| !output.program.path(&feeds::file_name(*file, "jsonl")).exists());
    let numbers = files.flat_map(|file| feeds::numbers_of(output.records, file));
    let lines = numbers.flat_map(|number| (output.records.text(number, Form::Json) + "\n").into_bytes());
    Ok(vec![vec![lines.collect()]])
}
