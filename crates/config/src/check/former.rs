//! Words for options and their values that other programs use, or that earlier versions had.
//!
//! A word has no component: it stands for the first of its names that is possible at the place where it was
//! written. So one table serves all components, and a new component needs no line.
//!
//! See docs/decisions/082-names-of-options.md.

use crate::{Diagnostic, Span};

/// A word, the names that it may stand for, and advice if another value is needed as well.
struct Term {
    word: &'static str,
    names: &'static [&'static str],
    advice: Option<&'static str>,
}

const fn term(word: &'static str, names: &'static [&'static str]) -> Term {
    Term { word, names, advice: None }
}

const fn advised(word: &'static str, names: &'static [&'static str], advice: &'static str) -> Term {
    Term { word, names, advice: Some(advice) }
}

/// The words for options.
const OPTIONS: &[Term] = &[
    // Places.
    term("address", &["url", "servers", "brokers", "server"]),
    term("addresses", &["servers", "brokers"]),
    term("url", &["address", "servers", "brokers", "server"]),
    term("uri", &["url", "address", "servers", "brokers", "server"]),
    term("endpoint", &["url", "address", "servers", "brokers", "server"]),
    term("endpoints", &["url", "address", "servers", "brokers", "server"]),
    term("bootstrap_server", &["brokers"]),
    term("bootstrap_servers", &["brokers"]),
    term("seed_brokers", &["brokers"]),
    term("servers", &["brokers", "server"]),
    term("server", &["servers", "brokers"]),
    term("hosts", &["servers", "brokers", "server"]),
    term("host", &["servers", "brokers", "server"]),
    term("dsn", &["server"]),
    term("connection_string", &["server"]),
    term("listen", &["address"]),
    term("paths", &["path"]),
    term("urls", &["url", "servers", "brokers"]),
    term("file", &["path"]),
    term("filename", &["path"]),
    term("filepath", &["path"]),
    term("directory", &["path"]),
    term("folder", &["path"]),
    // Lists and fields.
    term("patterns", &["pattern"]),
    term("regex", &["pattern"]),
    term("expression", &["pattern", "condition"]),
    term("includes", &["include"]),
    term("excludes", &["exclude"]),
    term("ignore", &["exclude"]),
    term("source", &["field", "from"]),
    term("target", &["into", "to"]),
    term("columns", &["fields"]),
    term("names", &["fields", "columns"]),
    term("key", &["keys"]),
    term("group_by", &["by"]),
    term("order_by", &["by"]),
    term("threshold", &["by_at_least"]),
    term("deadband", &["by_at_least"]),
    term("merge_strategies", &["merge"]),
    term("keys", &["key"]),
    // Following and links.
    advised("watch", &["follow"], "Write `follow: true`, and the time between two looks as `poll_interval`."),
    term("tail", &["follow"]),
    term("interval", &["poll_interval", "every"]),
    term("refresh_interval", &["scan_interval", "poll_interval"]),
    advised("follow_links", &["symlinks"], "Write `symlinks: files` to read through links that lead out."),
    advised("follow_symlinks", &["symlinks"], "Write `symlinks: files` to read through links that lead out."),
    term("links", &["symlinks"]),
    // Files that exist.
    term("on_exists", &["existing"]),
    term("on_existing", &["existing"]),
    term("if_exists", &["existing"]),
    term("exists", &["existing"]),
    advised("overwrite", &["existing"], "Write `existing: replace`."),
    advised("append", &["existing"], "Write `existing: append`."),
    // Sizes and numbers.
    term("max_file", &["max_file_bytes"]),
    term("max_request", &["max_request_bytes"]),
    term("max_size", &["max_bytes", "max_file_bytes", "max_message_bytes"]),
    term("min_size", &["min_bytes", "min_file_bytes"]),
    term("max", &["max_bytes"]),
    term("min", &["min_bytes"]),
    term("max_output", &["max_output_bytes"]),
    term("cache_limit", &["max_cache_bytes"]),
    term("cache_size", &["max_cache_bytes"]),
    term("slice", &["slice_size"]),
    term("row_group", &["row_group_size"]),
    advised("parquet", &["encode"], "Write `encode: parquet`, or `encode: { format: parquet, columns: … }`."),
    term("send_buffer", &["send_buffer_size"]),
    term("client_buffer", &["max_client_bytes"]),
    term("max_line_bytes", &["max_message_bytes"]),
    term("max_length", &["max_message_bytes"]),
    term("window", &["max_keys"]),
    term("buffer", &["max_records"]),
    // Times.
    term("within", &["max_age"]),
    term("ttl", &["max_age"]),
    term("ignore_older", &["max_age"]),
    term("ignore_older_secs", &["max_age"]),
    term("rotate_wait", &["rotate_timeout"]),
    term("tolerance", &["max_delay"]),
    term("keep_for", &["keep_age"]),
    term("expire_after", &["idle_timeout"]),
    term("expire_after_ms", &["idle_timeout"]),
    term("end_every_period_ms", &["max_age"]),
    term("max_events", &["max_count"]),
    term("timeout_secs", &["timeout"]),
    term("session_gap", &["session_timeout"]),
    term("gap", &["session_timeout"]),
    term("period", &["every", "per"]),
    // Permissions and compression.
    term("permissions", &["mode"]),
    term("file_mode", &["mode"]),
    term("dir_mode", &["folder_mode"]),
    term("directory_mode", &["folder_mode"]),
    advised("mode", &["existing"], "`mode` is the permissions of files."),
    term("compress", &["compression"]),
    // Others.
    term("codec", &["encode", "format"]),
    term("encoding", &["encode", "charset"]),
    term("start_position", &["read_from"]),
    term("auto_offset_reset", &["start"]),
    term("fields", &["keys", "columns", "add_fields"]),
];

/// The words for values.
const VALUES: &[Term] = &[
    term("fail", &["error"]),
    term("number", &["rename"]),
    term("overwrite", &["replace"]),
    term("ignore", &["skip"]),
    term("block", &["wait"]),
    term("array", &["list"]),
    term("flat_unique", &["distinct"]),
    term("retain", &["last"]),
    term("accepted", &["received"]),
    term("gz", &["gzip"]),
    term("zst", &["zstd"]),
    // Acknowledgements of Kafka.
    term("1", &["leader"]),
    term("-1", &["all"]),
];

/// Words for what is written at another place, and how it is written there.
const ELSEWHERE: &[(&[&str], Place, &str)] = &[
    (
        &["max_size", "max_bytes", "max_length", "max_line_bytes", "max_message_bytes"],
        Place::Within("framing"),
        "Write `max_message_bytes: …` beside `framing`.",
    ),
    (
        &["protocol", "transport", "network"],
        Place::BesideSocketAddress,
        "It is a part of `address`: write `address: \"udp://…\"` or `address: \"tcp://…\"`.",
    ),
];

/// Where a word was written.
enum Place {
    /// Among the options of this option.
    Within(&'static str),
    /// Beside an `address` that begins with a protocol.
    BesideSocketAddress,
}

/// Returns a sentence for a word that belongs to another place. `outer` is the option in which it was
/// written; `address` describes the option `address` beside it.
pub(super) fn elsewhere(word: &str, outer: Option<&str>, address: Option<&str>) -> Option<&'static str> {
    let fits = |place: &Place| match place {
        Place::Within(name) => outer == Some(*name),
        Place::BesideSocketAddress => address.is_some_and(|text| text.contains("udp://")),
    };
    let found = ELSEWHERE.iter().find(|(words, place, _)| words.contains(&word) && fits(place));
    found.map(|(.., sentence)| *sentence)
}

/// Reports a word for an option. `names` are the options that are possible instead.
pub(super) fn option<'a>(
    word: &str,
    span: Span,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<(&'static str, Diagnostic)> {
    reported(OPTIONS, word, span, names)
}

/// Reports a word for a value. `names` are the values that are possible instead.
pub(super) fn value<'a>(
    word: &str,
    span: Span,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<Diagnostic> {
    reported(VALUES, word, span, names).map(|(_, mistake)| mistake)
}

fn reported<'a>(
    terms: &'static [Term],
    word: &str,
    span: Span,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<(&'static str, Diagnostic)> {
    let plain = word.to_lowercase().replace('-', "_");
    let term = terms.iter().find(|term| term.word == plain)?;
    let name = *term.names.iter().find(|name| names.clone().any(|possible| possible == **name))?;
    let mut mistake = Diagnostic::new(span, format!("`{word}` is called `{name}` here."));
    if let Some(advice) = term.advice {
        mistake.help(advice);
    }
    Some((name, mistake))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{OPTIONS, VALUES};

    #[test]
    fn a_word_is_in_one_line_of_its_table() {
        for terms in [OPTIONS, VALUES] {
            let mut words = HashSet::new();
            let twice: Vec<_> =
                terms.iter().map(|term| term.word).filter(|word| !words.insert(*word)).collect();
            assert_eq!(twice, [""; 0]);
        }
    }
}
