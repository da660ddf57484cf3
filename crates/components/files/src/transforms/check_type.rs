//! Rejects files whose type is not allowed.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{
    Component, Context, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
};
use thalweg_media::mime::Matcher;
use thalweg_record::File;

use crate::{content, mime};

/// Rejects files whose type is not allowed.
///
/// The type is detected from the content, not from the name. Write a type as `image/jpeg` or `image/*`. Other
/// names of a type, such as `image/jpg`, mean the same. Parameters, such as `; charset=utf-8`, are ignored.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckType {
    /// The allowed types. By default all types are allowed except those in `deny`.
    #[schemars(example = ["image/jpeg", "image/png"])]
    #[serde(default)]
    allow: List<String>,
    /// The types that are rejected, even if `allow` contains them. The default is none.
    #[serde(default)]
    deny: List<String>,
}

impl Component for CheckType {
    const NAME: &'static str = "check_type";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*" } }
pipelines:
  main:
    from: photos
    transforms:
      - check_type: { allow: [image/jpeg, image/png] }
    to: kept
sinks:
  kept: { directory: { path: kept } }
"#;

    fn check(&self) -> Vec<Mistake> {
        if self.allow.is_empty() && self.deny.is_empty() {
            let help = "Give it `allow` or `deny`, as `check_type: { allow: [image/*] }`.";
            return vec![Mistake::new("", "`check_type` names no type.").help(help)];
        }
        let wrong = |option, list: &[String]| {
            let reason = Matcher::new(list).err()?.to_string();
            let end = if reason.ends_with('?') { "" } else { "." };
            Some(Mistake::new(option, reason + end))
        };
        [wrong("allow", &self.allow), wrong("deny", &self.deny)].into_iter().flatten().collect()
    }
}

impl FileTransformConfig for CheckType {
    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        let matcher =
            |list: &[String]| Matcher::new(list).map_err(|error| Error::permanent(error.to_string()));
        let allow = if self.allow.is_empty() { None } else { Some(matcher(&self.allow)?) };
        Ok(Box::new(Checking { allow, deny: matcher(&self.deny)? }))
    }
}

struct Checking {
    allow: Option<Matcher>,
    deny: Matcher,
}

#[async_trait]
impl FileTransform for Checking {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        if file.mime().is_none() {
            content::keep_open(file)?;
        }
        let mime = mime::of(file)?;
        let is_allowed = self.allow.as_ref().is_none_or(|allow| allow.matches(&mime));
        if is_allowed && !self.deny.matches(&mime) {
            return Ok(Disposition::Continue);
        }
        Err(FileError::coded(
            "FILE_MIME_TYPE_IS_NOT_ALLOWED",
            format!("the file's type `{mime}` is not allowed"),
        ))
    }

    fn only_reads(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{apply_to_file, file_of, messages, options};

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    #[tokio::test]
    async fn the_content_decides_not_the_name() {
        for (yaml, content, expected) in [
            ("{ allow: [image/png] }", PNG, Ok(Disposition::Continue)),
            ("{ allow: [image/jpeg] }", PNG, Err("the file's type `image/png` is not allowed")),
            ("{ allow: ['image/*'] }", PNG, Ok(Disposition::Continue)),
            (
                "{ allow: ['image/*'], deny: [image/png] }",
                PNG,
                Err("the file's type `image/png` is not allowed"),
            ),
            ("{ deny: [image/png] }", b"text".as_slice(), Ok(Disposition::Continue)),
            ("{ allow: [text/plain] }", b"text".as_slice(), Ok(Disposition::Continue)),
            (
                "{ allow: [text/plain] }",
                b"\0\x01\x02".as_slice(),
                Err("the file's type `application/octet-stream` is not allowed"),
            ),
        ] {
            let mut file = file_of("photo.jpg", content);
            let applied = apply_to_file::<CheckType>(yaml, &mut file).await;
            assert_eq!(applied.map_err(|problem| problem.reason), expected.map_err(str::to_owned), "{yaml}");
            assert!(file.mime().is_some());
        }
    }

    #[test]
    fn what_is_no_type_is_a_mistake() {
        let mistakes = options::<CheckType>("{ allow: [image/png, jpeg] }").check();
        assert_eq!(messages(mistakes), ["`jpeg` is not a MIME type; did you mean `image/jpeg`?"]);
        assert_eq!(messages(options::<CheckType>("{}").check()), ["`check_type` names no type."]);
    }
}
