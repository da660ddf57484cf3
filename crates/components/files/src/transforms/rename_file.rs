//! Gives files another name.

use std::path::{self, Path};

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
/// below its folder, as in `name: "small/{name}"`. A name that begins with a slash, ends with one or has the
/// part `.` at its beginning or `..` is rejected.
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
        if self.to.is_absolute() {
            let help = "A name is below the file's own folder: leave out the slash. The option `name` of the sink \
                        chooses the whole path below the folder of the sink.";
            return vec![Mistake::new("to", "The name is an absolute path.").help(help)];
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
        // Here, since a sink would reject it only without a folder before it: `2026//a.jpg` is a path.
        if !is_below(Path::new(&name)) {
            let reason = format!("the new name `{}` does not lead below a folder", name.display());
            return Err(FileError::rejected(reason));
        }
        file.set_name(name);
        Ok(Disposition::Continue)
    }
}

/// True if a name is that of a file below any folder.
fn is_below(name: &Path) -> bool {
    let is_plain = name.components().all(|part| matches!(part, path::Component::Normal(_)));
    is_plain && !name.as_os_str().as_encoded_bytes().ends_with(b"/")
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

    #[tokio::test]
    async fn a_name_that_is_not_below_a_folder_is_rejected_whatever_the_folder_of_the_file() {
        for to in ["/{name}", "./{name}", "../{name}", "a/../{name}", "{name}/"] {
            for name in ["a.txt", "2026/a.txt"] {
                let mut file = file_of(name, b"text");
                let to = format!("{{ to: \"{to}\" }}");
                let problem = apply_to_file::<RenameFile>(&to, &mut file).await.unwrap_err();
                assert!(problem.reason.ends_with("` does not lead below a folder"), "{to}: {problem:?}");
                assert_eq!(file.name(), name);
            }
        }
        for to in ["/{name}", "{path}", "{original_path}.bak"] {
            let mistakes = options::<RenameFile>(&format!("{{ to: \"{to}\" }}")).check();
            assert_eq!(messages(mistakes), ["The name is an absolute path."], "{to}");
        }
    }
}
