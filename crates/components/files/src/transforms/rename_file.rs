//! Gives files another name.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
};
use thalweg_record::File;

use crate::file_template::FileTemplate;

/// Gives files another name, under which they are written later. Nothing is renamed on the disk.
///
/// A name with slashes leads into folders below the file's own folder. With `to: "small/{name}"`, a sink
/// writes `2026/photo.jpg` as `2026/small/photo.jpg`. The option `name` of the sink chooses the whole path
/// below its folder, as in `name: "small/{name}"`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameFile {
    /// The new name, with properties of the file in braces, such as `{stem}`, `{suffix}`, `{date}` or `{id}`.
    /// The page "Configuration" lists all of them.
    #[schemars(example = "{date}-{stem}{mime_suffix}")]
    to: FileTemplate,
}

impl Component for RenameFile {
    const NAME: &'static str = "rename_file";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*" } }
pipelines:
  main:
    from: photos
    transforms:
      - hash: {}
      - rename_file: { to: "{hash}{mime_suffix}" }
    to: by_content
sinks:
  by_content: { directory: { path: by-content, existing: skip } }
"#;

    fn check(&self) -> Vec<Mistake> {
        if self.to.is_empty() {
            return vec![
                Mistake::new("to", "The name is empty.").help("`{name}` is the present name of a file."),
            ];
        }
        Vec::new()
    }
}

impl FileTransformConfig for RenameFile {
    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Renaming { to: self.to.clone() }))
    }
}

struct Renaming {
    to: FileTemplate,
}

#[async_trait]
impl FileTransform for Renaming {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let name = self.to.render(file)?;
        if name.is_empty() {
            return Err(FileError::rejected("the new name is empty for this file"));
        }
        file.set_name(name);
        Ok(Disposition::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{apply_to_file, file_of, messages, options};

    #[tokio::test]
    async fn a_file_has_its_new_name_and_one_without_any_is_rejected() {
        let mut file = file_of("a.txt", b"text");
        let to = r#"{ to: "below/{stem}-1{suffix}" }"#;
        assert_eq!(apply_to_file::<RenameFile>(to, &mut file).await, Ok(Disposition::Continue));
        assert_eq!(
            (file.name().to_str(), file.origin().name.to_str()),
            (Some("below/a-1.txt"), Some("a.txt"))
        );
        let problem = apply_to_file::<RenameFile>(r#"{ to: "{folder}" }"#, &mut file).await.unwrap_err();
        assert_eq!(problem.reason, "the new name is empty for this file");
        assert_eq!(file.name(), "below/a-1.txt");
        assert_eq!(messages(options::<RenameFile>(r#"{ to: "" }"#).check()), ["The name is empty."]);
    }
}
