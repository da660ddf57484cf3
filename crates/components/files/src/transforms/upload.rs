//! Uploads files to a store and passes them on.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Cost, Error, FileTransform, FileTransformConfig, Mistake};
use thalweg_record::File;

use crate::sinks::objects::ObjectsSink;

/// Uploads files to an object store and passes them on unchanged.
///
/// The options are those of the sink `objects`; use that sink if nothing comes after it. Afterwards, the note
/// `url` of a file holds its address in the store.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Upload(ObjectsSink);

impl Component for Upload {
    const NAME: &'static str = "upload";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*.jpg" } }
pipelines:
  main:
    from: photos
    transforms:
      - upload: { url: "originals/", existing: update }
      - convert_image: { to: webp }
    to: converted
sinks:
  converted: { objects: { url: "converted/" } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.0.check();
        mistakes.extend(self.0.about_messages().map(|option| {
            let mistake =
                Mistake::new(option, format!("`{option}` applies to messages, but `upload` receives files."));
            mistake.help("Remove it.")
        }));
        mistakes
    }
}

impl FileTransformConfig for Upload {
    fn cost(&self) -> Cost {
        Cost::Waits
    }

    fn has_effects(&self) -> bool {
        true
    }

    fn target(&self, file: &mut File) -> Option<String> {
        FileTransformConfig::target(&self.0, file)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        FileTransformConfig::build(&self.0, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::URL;
    use thalweg_engine::Disposition;
    use thalweg_engine::testing::{context, file_of, options};

    #[tokio::test]
    async fn a_file_goes_on_and_says_where_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let upload = options::<Upload>(&format!("{{ url: '{path}/', name: 'x-{{name}}' }}"));
        let mut file = file_of("a", b"1");
        let mut transform = FileTransformConfig::build(&upload, &context()).unwrap();
        assert_eq!(transform.apply(&mut file).await.unwrap(), Disposition::Continue);
        assert_eq!(std::fs::read(folder.path().join("x-a")).unwrap(), b"1");
        assert_eq!(file.note(URL).unwrap(), format!("{path}/x-a"));
    }

    #[test]
    fn what_is_about_messages_is_a_mistake() {
        let upload = options::<Upload>("{ url: 's3://b/', encode: parquet, rotate: { size: 1KiB } }");
        let mistakes = Component::check(&upload);
        assert!(["encode", "rotate"].iter().all(|option| mistakes.iter().any(|m| m.option == *option)));
    }
}
