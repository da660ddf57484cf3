//! The names of numbered parts: `out.jsonl` becomes `out-00001.jsonl`, `out-00002.jsonl` and so on.
//!
//! All sinks that rotate use this rule, so that a name leads to the same parts in a folder and in a store.
//! The number is in front of the last extension, because the text before it often has dots of its own:
//! `app.2026.jsonl`. (Rejected: in front of the first dot, which splits such names in the middle.)

/// The extensions that follow another one: `.jsonl.gz`.
const COMPRESSED: [&str; 4] = [".gz", ".gzip", ".zst", ".zstd"];

/// Splits a path before the extension of its last name: `a/out.jsonl.gz` into `a/out` and `.jsonl.gz`. The
/// extension is empty if the name has none. A dot at the beginning of a name belongs to the name.
pub fn split(path: &str) -> (&str, &str) {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let bare = COMPRESSED.iter().find_map(|suffix| path.strip_suffix(suffix)).unwrap_or(path);
    let dot = bare.get(name..).and_then(|name| name.rfind('.')).filter(|&dot| dot > 0).map(|dot| name + dot);
    path.split_at(dot.unwrap_or(bare.len()))
}

/// Returns a path with `-` and the label before its extension.
pub fn labelled(path: &str, label: &str) -> String {
    let (stem, extension) = split(path);
    format!("{stem}-{label}{extension}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_label_stands_before_the_extension() {
        for (path, expected) in [
            ("out.jsonl", "out-7.jsonl"),
            ("日誌.jsonl", "日誌-7.jsonl"),
            ("out/日誌.jsonl.zst", "out/日誌-7.jsonl.zst"),
            ("日", "日-7"),
            ("日.日", "日-7.日"),
            ("app.2026.jsonl", "app.2026-7.jsonl"),
            ("app.2026.jsonl.gz", "app.2026-7.jsonl.gz"),
            ("access.2024-01-02.log", "access.2024-01-02-7.log"),
            ("a.b/out", "a.b/out-7"),
            ("a.b/out.gz", "a.b/out-7.gz"),
            ("a/.hidden", "a/.hidden-7"),
            ("a/.hidden.log", "a/.hidden-7.log"),
            ("out.", "out-7."),
            (".gz", "-7.gz"),
            ("a/.gz", "a/-7.gz"),
            ("", "-7"),
        ] {
            assert_eq!(labelled(path, "7"), expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_of_a_path_is_lost_and_its_folder_stays(path in "[a./日z]{0,10}(\\.gz|\\.zstd)?") {
            let (stem, extension) = split(&path);
            prop_assert_eq!(format!("{stem}{extension}"), &*path);
            prop_assert!(!extension.contains('/'));
        }
    }
}
