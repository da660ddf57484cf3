//! Reads back the output of sinks.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::oracle::Replica;
use crate::outlet::Output;
use crate::program::Launch;
use crate::read;
use crate::servers::Server;

/// The files of `out` one after the other, in the order of their names.
pub(super) fn in_order(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    Ok(vec![vec![read::joined(in_pieces(output)?.remove(0))]])
}

/// The packs of `out`, in the order of their names. A pack whose name is taken is called
/// `part-00002-2.jsonl`: a run after a kill begins with a number that is taken if its source sends no message
/// twice, and goes on behind the others. So the second packs are a piece of their own, in an order of their
/// own, as are the third.
pub(super) fn in_generations(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    let mut generations = BTreeMap::<usize, Replica>::new();
    for path in read::finished(&output.program.path("out"), output.also_unfinished)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let generation = name.split(['-', '.']).nth(2).and_then(|part| part.parse().ok()).unwrap_or(1);
        generations.entry(generation).or_default().push(read::content(&path)?);
    }
    Ok(vec![generations.into_values().map(read::joined).collect()])
}

/// The files of `out`, each in an order of its own.
pub(super) fn in_pieces(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    Ok(vec![read::contents(&output.program.path("out"), output.also_unfinished)?])
}

/// The files of `out` as one, in the order of the names that they get when they are finished.
pub(super) fn in_order_of_numbers(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    let mut paths = read::finished(&output.program.path("out"), output.also_unfinished)?;
    paths.sort_by_key(|path| path.to_string_lossy().replace(".continued.part", "").replace(".part", ""));
    let pieces: io::Result<_> = paths.iter().map(|path| read::content(path)).collect();
    Ok(vec![vec![read::joined(pieces?)]])
}

/// The files of `out`, and the dead letters that are whole messages. Of a run that has not ended, only the
/// files.
pub(super) fn with_letters(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    let mut replicas = in_order(output)?;
    if !output.also_unfinished {
        let letters = output.program.dead_letters()?;
        let whole = letters.into_iter().filter(|letter| !letter.may_be_torn());
        let lines = whole.flat_map(|letter| (letter.payload + "\n").into_bytes());
        replicas[0].push(lines.collect());
    }
    Ok(replicas)
}

/// Returns the complete objects. Parts of others are in hidden folders.
pub(super) fn uploaded(output: &Output<'_>) -> io::Result<Vec<Vec<u8>>> {
    let Some(folder) = output.server.and_then(Server::objects) else { return Ok(Vec::new()) };
    let is_hidden = |path: &Path| {
        let below = path.strip_prefix(&folder).unwrap_or(path);
        below.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
    };
    read::files(&folder)?.iter().filter(|path| !is_hidden(path)).map(|path| read::content(path)).collect()
}

/// Returns the bytes that the server accepted.
pub(super) fn accepted(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    Ok(vec![vec![output.server.map(Server::received).transpose()?.unwrap_or_default()]])
}

/// Returns the messages that a separate run reads from the spool. While the spool is being written, none.
pub(super) fn spooled(output: &Output<'_>) -> io::Result<Vec<Replica>> {
    let program = output.program;
    if output.also_unfinished {
        return Ok(vec![Vec::new()]);
    }
    let config = "sources: { kept: { spool: { path: out, follow: false, poll_interval: 10ms } } }\n\
                  pipelines: { main: { from: kept, to: out } }\n\
                  sinks: { out: { file: { path: spooled.jsonl } } }\n";
    program.write("empty.yaml", config)?;
    let launch = Launch { state: None, ..Launch::of("empty.yaml") };
    let ended = program.start(&launch)?.wait().map_err(io::Error::other)?;
    match ended.is_done() {
        true => Ok(vec![vec![read::content(&program.path("spooled.jsonl"))?]]),
        false => Err(io::Error::other(ended.log)),
    }
}
