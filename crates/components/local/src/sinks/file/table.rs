//! Parquet tables in files: the writer of the sink `objects` writes them.
//!
//! A table has its metadata at its end. A file that a later run cuts back to a checkpoint, as it does with
//! lines, would be no table, so the promises of [`Files`](super::files::Files) cannot hold. The sink
//! `objects` has others, which fit: a draft becomes visible when it is complete and a checkpoint covers it.
//! (Rejected: a second writer with the same promises.)

use thalweg_codec::compress::Compression;
use thalweg_engine::{Context, Error, Mistake, Sink};

use super::config::FileConfig;
#[cfg(feature = "parquet")]
use super::config::{Existing, constant_folder};
use super::{Fsync, Numbers};

/// Builds the sink.
///
/// # Errors
/// As the sink `objects`.
#[cfg(feature = "parquet")]
pub(super) fn build(config: &FileConfig, context: &Context) -> Result<Box<dyn Sink>, Error> {
    use thalweg_engine::SinkConfig;
    use thalweg_files::sinks::objects;

    let folder = constant_folder(config.path.prefix());
    let existing = match config.existing {
        Existing::Error => Some(objects::Existing::Error),
        _ => None,
    };
    let rotate = config.rotate.as_ref();
    let rotate = rotate.map(|rotate| objects::Rotate { size: rotate.size, every: rotate.every });
    let sink = objects::ObjectsSink::of_messages(
        if folder.is_empty() { "./".to_owned() } else { folder.to_owned() },
        config.path.without_prefix(folder.len()),
        config.encode.clone(),
        rotate,
        existing,
        super::files::most_open(config.max_open_files),
    );
    SinkConfig::build(&sink, context)
}

/// Returns the error that this build writes no Parquet.
///
/// # Errors
/// Always.
#[cfg(not(feature = "parquet"))]
pub(super) fn build(_: &FileConfig, _: &Context) -> Result<Box<dyn Sink>, Error> {
    Err(Error::permanent(
        "this build of thalweg does not write Parquet; build it with the feature `parquet`, or use another format",
    ))
}

/// Returns the options that have no meaning for tables.
pub(super) fn mistakes(config: &FileConfig) -> Vec<Mistake> {
    let rotate = config.rotate.as_ref();
    let of_rotate = rotate.is_some_and(|rotate| {
        let limits = rotate.keep.is_some() || rotate.keep_age.is_some() || rotate.keep_bytes.is_some();
        let names = rotate.separator != "-" || rotate.numbers != Numbers::Always || rotate.digits.is_some();
        let others = rotate.at.is_some() || rotate.timestamp.is_some() || rotate.link.is_some();
        limits || names || others || rotate.compression != Compression::None
    });
    let given = [
        ("delimiter", config.delimiter != "\n", "A table has no delimiters."),
        ("compression", config.compression != Compression::None, "A table compresses its columns itself."),
        ("compression_level", config.compression_level.is_some(), "A table compresses its columns itself."),
        ("atomic", !config.atomic, "A table that is not complete cannot be read."),
        ("existing", config.existing.adds(), "Nothing can be added to a table."),
        ("fsync", config.fsync != Fsync::Finish, "A table is on the disk before it has its name."),
        ("mode", config.mode.is_some(), "Tables have the permissions that the system decides."),
        ("folder_mode", config.folder_mode.is_some(), "Tables have the permissions that the system decides."),
        ("idle_timeout", config.idle_timeout.is_some(), "A table is complete when it is full or old."),
        ("rotate", of_rotate, "Tables begin by `size` and `every`, and their names have numbers only."),
    ];
    let given = given.into_iter().filter(|(_, is_given, _)| *is_given);
    let help = |option| match option {
        "compression" | "compression_level" => {
            "Write `encode: { format: parquet, compression: snappy }`, or remove it."
        }
        "idle_timeout" => "Write `rotate: { every: 10m }`, or remove it.",
        "rotate" => "Leave out its other options.",
        _ => "Remove it.",
    };
    given.map(|(option, _, why)| Mistake::new(option, why).help(help(option))).collect()
}

#[cfg(test)]
mod tests {
    use thalweg_engine::Component;
    use thalweg_engine::testing::options;

    use super::*;

    #[test]
    fn options_that_have_no_meaning_for_a_table_are_mistakes() {
        let mistakes = |yaml: &str| -> Vec<&str> {
            let config: FileConfig =
                options(&format!("{{ path: 'out/{{a}}.parquet', encode: parquet{yaml} }}"));
            config.check().into_iter().map(|mistake| mistake.option).collect()
        };
        assert!(mistakes(", rotate: { size: 1MiB, every: 1h }, max_open_files: 3").is_empty());
        assert_eq!(mistakes(", compression: gzip, atomic: false"), ["compression", "atomic"]);
        assert_eq!(mistakes(", existing: append, rotate: { size: 1MiB, keep: 2 }"), ["existing", "rotate"]);
    }

    #[cfg(feature = "parquet")]
    #[tokio::test]
    async fn each_path_has_a_table_which_is_hidden_until_it_is_complete() {
        use std::fs;

        use thalweg_engine::testing::{batch, context};
        use thalweg_engine::{Rejects, SinkConfig};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let config: FileConfig = options(&format!(
            "{{ path: '{path}/{{payload}}.parquet', encode: {{ format: parquet, columns: {{ a: int }} }} }}"
        ));
        let mut sink = SinkConfig::build(&config, &context()).unwrap();
        sink.open(None).await.unwrap();
        let mut rejects = Rejects::default();
        sink.write(&batch(["x", "y", "x", "../z"]), &mut rejects).await.unwrap();
        let names = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.retain(|name| !name.starts_with('.'));
            names.sort();
            names
        };
        assert!(names().is_empty());
        sink.finish().await.unwrap();
        assert_eq!(names(), ["x.parquet", "y.parquet"]);
        assert_eq!(rejects.take().len(), 1);
        assert!(fs::read(folder.path().join("x.parquet")).unwrap().ends_with(b"PAR1"));
    }
}
