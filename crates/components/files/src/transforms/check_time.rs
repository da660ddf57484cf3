//! Rejects files that are too old or too new.

use std::time::SystemTime;

use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, Utc};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
};
use thalweg_record::{File, Times};

/// Rejects files by the time at which they were last read, written or changed, as their source found them.
///
/// Each bound is a time in the form of RFC 3339, for example `2024-01-31T12:30:00Z`. A time equal to a bound
/// is allowed. The bounds are checked in the order of this list. A bound that is not given does not apply.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckTime {
    /// The earliest time at which the file may have been read last.
    min_accessed: Option<String>,
    /// The latest time at which the file may have been read last.
    max_accessed: Option<String>,
    /// The earliest time at which the content may have been written last.
    #[schemars(example = "2024-01-01T00:00:00Z")]
    min_modified: Option<String>,
    /// The latest time at which the content may have been written last.
    max_modified: Option<String>,
    /// The earliest time at which content, name or permissions may have changed last.
    min_changed: Option<String>,
    /// The latest time at which content, name or permissions may have changed last.
    max_changed: Option<String>,
}

/// One of the bounds that are given.
struct Bound {
    time: fn(&Times) -> Option<SystemTime>,
    is_min: bool,
    at: SystemTime,
    code: &'static str,
    what: &'static str,
}

type Row = (&'static str, fn(&Times) -> Option<SystemTime>, bool, &'static str, &'static str);

/// The bounds in the order in which they are checked: option, time, true for the earliest, code, words.
const BOUNDS: [Row; 6] = [
    ("min_accessed", |times| times.accessed, true, "FILE_ATIME_IS_TOO_OLD", "last read"),
    ("max_accessed", |times| times.accessed, false, "FILE_ATIME_IS_TOO_NEW", "last read"),
    ("min_modified", |times| times.modified, true, "FILE_MTIME_IS_TOO_OLD", "last written"),
    ("max_modified", |times| times.modified, false, "FILE_MTIME_IS_TOO_NEW", "last written"),
    ("min_changed", |times| times.changed, true, "FILE_CTIME_IS_TOO_OLD", "last changed"),
    ("max_changed", |times| times.changed, false, "FILE_CTIME_IS_TOO_NEW", "last changed"),
];

impl CheckTime {
    fn texts(&self) -> [&Option<String>; 6] {
        [
            &self.min_accessed,
            &self.max_accessed,
            &self.min_modified,
            &self.max_modified,
            &self.min_changed,
            &self.max_changed,
        ]
    }
}

impl Component for CheckTime {
    const NAME: &'static str = "check_time";
    const EXAMPLE: &'static str = r#"
sources:
  reports: { files: { path: "reports/*.pdf" } }
pipelines:
  main:
    from: reports
    transforms:
      - check_time: { min_modified: "2024-01-01T00:00:00Z" }
    to: kept
sinks:
  kept: { directory: { path: kept } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let given = self.texts().into_iter().zip(BOUNDS);
        let given: Vec<_> = given.filter_map(|(text, bound)| Some((text.as_ref()?, bound))).collect();
        if given.is_empty() {
            let help = "Give it at least one, as `check_time: { min_modified: \"2024-01-01T00:00:00Z\" }`.";
            return vec![Mistake::new("", "`check_time` has no bound.").help(help)];
        }
        let wrong = given.into_iter().filter(|(text, _)| DateTime::parse_from_rfc3339(text).is_err());
        wrong
            .map(|(text, (option, ..))| {
                let message = format!("`{text}` is not a time in the form of RFC 3339.");
                Mistake::new(option, message)
                    .help("Write it as `2024-01-31T12:30:00Z` or `2024-01-31T12:30:00+01:00`.")
            })
            .collect()
    }
}

impl FileTransformConfig for CheckTime {
    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        let mut bounds = Vec::new();
        for (text, (_, time, is_min, code, what)) in self.texts().into_iter().zip(BOUNDS) {
            let Some(text) = text else { continue };
            let at = DateTime::parse_from_rfc3339(text).map_err(|error| {
                Error::permanent(format!("`{text}` is not a time in the form of RFC 3339: {error}"))
            })?;
            bounds.push(Bound { time, is_min, at: at.into(), code, what });
        }
        Ok(Box::new(Checking { bounds }))
    }
}

struct Checking {
    bounds: Vec<Bound>,
}

#[async_trait]
impl FileTransform for Checking {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let times = &file.origin().times;
        for bound in &self.bounds {
            let Some(time) = (bound.time)(times) else {
                let reason = format!("it is not known when the file was {}", bound.what);
                return Err(FileError::coded("FILE_INFO_CAN_NOT_BE_RETRIEVED", reason));
            };
            let is_allowed = if bound.is_min { time >= bound.at } else { time <= bound.at };
            if !is_allowed {
                let shown =
                    |time: SystemTime| DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Secs, true);
                let order = if bound.is_min { "before" } else { "after" };
                let reason =
                    format!("the file was {} at {}, {order} {}", bound.what, shown(time), shown(bound.at));
                return Err(FileError::coded(bound.code, reason));
            }
        }
        Ok(Disposition::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use thalweg_engine::testing::{apply_to_file, file_at, file_of, messages, options};

    #[tokio::test]
    async fn the_first_bound_that_does_not_hold_decides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let written = std::fs::File::create(&path).unwrap();
        // 2023-11-14T22:13:20Z
        written.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
        drop(written);
        for (yaml, code) in [
            ("{ min_modified: 2023-11-14T22:13:20Z, max_modified: 2023-11-14T22:13:20Z }", None),
            ("{ min_modified: 2023-11-14T22:13:21Z }", Some("FILE_MTIME_IS_TOO_OLD")),
            ("{ max_modified: 2023-11-14T23:13:19+01:00 }", Some("FILE_MTIME_IS_TOO_NEW")),
            (
                "{ max_accessed: 2001-01-01T00:00:00Z, max_modified: 2001-01-01T00:00:00Z }",
                Some("FILE_ATIME_IS_TOO_NEW"),
            ),
        ] {
            let applied = apply_to_file::<CheckTime>(yaml, &mut file_at(&path)).await;
            assert_eq!(applied.err().and_then(|problem| problem.code), code, "{yaml}");
        }
        let applied =
            apply_to_file::<CheckTime>("{ max_modified: 2001-01-01T00:00:00Z }", &mut file_of("x", b""))
                .await;
        assert_eq!(applied.unwrap_err().reason, "it is not known when the file was last written");
    }

    #[test]
    fn what_is_no_time_is_a_mistake() {
        let mistakes = options::<CheckTime>("{ min_modified: yesterday }").check();
        assert_eq!(mistakes[0].option, "min_modified");
        assert_eq!(messages(options::<CheckTime>("{}").check()), ["`check_time` has no bound."]);
    }
}
