//! Templates with properties of a file: names to write it under, and arguments of commands.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_codec::braces;
use thalweg_config::{FormatError, nearest, register_format};
use thalweg_engine::FileError;
use thalweg_record::File;

use crate::mime;

const FORMAT: &str = "file-template";

/// The key of the file's note that `{hash}` inserts.
pub const HASH: &str = "hash";

/// The properties of a file that templates can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// The current path.
    Path,
    /// The current name.
    Name,
    /// The name without its extension.
    Stem,
    /// The extension without a dot.
    Extension,
    /// The extension with its dot, or nothing.
    Suffix,
    /// The path where the source found the file.
    OriginalPath,
    /// The name when the source found the file.
    OriginalName,
    /// The original name without its extension.
    OriginalStem,
    /// The extension of the original name.
    OriginalExtension,
    /// The extension of the original name with its dot, or nothing.
    OriginalSuffix,
    /// The original folder relative to the folder of the source, with a slash at its end, or nothing.
    Folder,
    /// A unique name.
    Id,
    /// The extension for the media type of the content.
    MimeExtension,
    /// The same with a dot, or nothing.
    MimeSuffix,
    /// The same with a dot if the original name has an extension, or nothing.
    RetypedSuffix,
    /// The checksum from the last transform `hash`.
    Hash,
    /// Today's date (UTC).
    Date,
}

const VARIABLES: [(&str, Variable); 17] = [
    ("path", Variable::Path),
    ("name", Variable::Name),
    ("stem", Variable::Stem),
    ("extension", Variable::Extension),
    ("suffix", Variable::Suffix),
    ("original_path", Variable::OriginalPath),
    ("original_name", Variable::OriginalName),
    ("original_stem", Variable::OriginalStem),
    ("original_extension", Variable::OriginalExtension),
    ("original_suffix", Variable::OriginalSuffix),
    ("folder", Variable::Folder),
    ("id", Variable::Id),
    ("mime_extension", Variable::MimeExtension),
    ("mime_suffix", Variable::MimeSuffix),
    ("retyped_suffix", Variable::RetypedSuffix),
    ("hash", Variable::Hash),
    ("date", Variable::Date),
];

/// A text with properties of a file.
///
/// `{name}` is the file's current name, `{stem}` the name without its extension, `{extension}` the extension,
/// and `{suffix}` the extension with its dot, or nothing. `{original_name}`, `{original_stem}`,
/// `{original_extension}` and `{original_suffix}` are the same for the name when the source found the file.
///
/// `{path}` is the current path, and `{original_path}` the path where the source found the file. `{folder}`
/// is the original folder relative to the folder of the source, with a slash at its end, or nothing. `{id}`
/// is a unique name.
///
/// `{mime_extension}` is the extension for the media type of the content, and `{mime_suffix}` the same with
/// its dot. `{retyped_suffix}` is `{mime_suffix}` if the original name has an extension, or nothing. `{hash}`
/// is the checksum from the last transform `hash`. `{date}` is today's date in UTC, such as 2024-02-14.
/// Braces are written `{{` and `}}`.
#[derive(Debug, Clone)]
pub struct FileTemplate {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Literal(String),
    Variable(Variable),
}

impl FileTemplate {
    /// Creates a template that inserts these properties one after the other.
    pub fn of(variables: impl IntoIterator<Item = Variable>) -> Self {
        Self { pieces: variables.into_iter().map(Piece::Variable).collect() }
    }

    /// True if the result is empty for every file.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// True if the result is an absolute path for every file.
    pub fn is_absolute(&self) -> bool {
        match self.pieces.first() {
            Some(Piece::Literal(text)) => text.starts_with('/'),
            Some(Piece::Variable(variable)) => matches!(variable, Variable::Path | Variable::OriginalPath),
            None => false,
        }
    }

    /// True if the template uses `variable`.
    pub fn uses(&self, variable: Variable) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Variable(used) if *used == variable))
    }

    /// Returns the text for a file.
    ///
    /// # Errors
    /// If the template needs a path or a checksum that the file does not have, or the type of content that
    /// cannot be read.
    pub fn render(&self, file: &mut File) -> Result<OsString, FileError> {
        let mut text = OsString::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => text.push(literal),
                Piece::Variable(variable) => text.push(value(*variable, file)?),
            }
        }
        Ok(text)
    }
}

fn value(variable: Variable, file: &mut File) -> Result<Cow<'_, OsStr>, FileError> {
    let without_path = || {
        let reason = "the file has no path: its content is in memory";
        FileError::coded("COMMAND_TEMPLATE_CAN_NOT_BE_RENDERED", reason)
    };
    let absolute =
        |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).into_os_string();
    let owned = |text: OsString| Ok(Cow::Owned(text));
    let typed = |file: &mut File| Ok::<_, FileError>(mime::extension(&mime::of(file)?));
    match variable {
        Variable::Path => owned(file.path().map(absolute).ok_or_else(without_path)?),
        Variable::OriginalPath => {
            owned(file.origin().path.as_deref().map(absolute).ok_or_else(without_path)?)
        }
        Variable::Name => Ok(Cow::Borrowed(file.name())),
        Variable::Stem => Ok(Cow::Borrowed(stem(file.name()))),
        Variable::Extension => Ok(Cow::Borrowed(extension(file.name()))),
        Variable::Suffix => owned(dotted(extension(file.name()))),
        Variable::OriginalName => Ok(Cow::Borrowed(&file.origin().name)),
        Variable::OriginalStem => Ok(Cow::Borrowed(stem(&file.origin().name))),
        Variable::OriginalExtension => Ok(Cow::Borrowed(extension(&file.origin().name))),
        Variable::OriginalSuffix => owned(dotted(extension(&file.origin().name))),
        Variable::Folder => {
            let mut folder = file.origin().relative().parent().map(PathBuf::from).unwrap_or_default();
            folder.push("");
            owned(folder.into_os_string())
        }
        Variable::Id => Ok(Cow::Borrowed(OsStr::new(file.origin().id()))),
        Variable::MimeExtension => Ok(Cow::Borrowed(OsStr::new(typed(file)?))),
        Variable::MimeSuffix => owned(dotted(OsStr::new(typed(file)?))),
        Variable::RetypedSuffix if extension(&file.origin().name).is_empty() => {
            Ok(Cow::Borrowed(OsStr::new("")))
        }
        Variable::RetypedSuffix => owned(dotted(OsStr::new(typed(file)?))),
        Variable::Hash => {
            let hash = file.note(HASH).map(|hash| Cow::Borrowed(OsStr::new(hash)));
            hash.ok_or_else(|| {
                FileError::rejected("the file has no `{hash}`: put the transform `hash` before")
            })
        }
        Variable::Date => owned(chrono::Utc::now().format("%Y-%m-%d").to_string().into()),
    }
}

fn stem(name: &OsStr) -> &OsStr {
    Path::new(name).file_stem().unwrap_or_default()
}

fn extension(name: &OsStr) -> &OsStr {
    Path::new(name).extension().unwrap_or_default()
}

fn dotted(extension: &OsStr) -> OsString {
    let mut suffix = OsString::new();
    if !extension.is_empty() {
        suffix.push(".");
        suffix.push(extension);
    }
    suffix
}

impl FromStr for FileTemplate {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Ok(Self { pieces: braces::parse(text, Piece::Literal, variable)? })
    }
}

/// Parses the name between braces, which begins at byte `at` of the template.
fn variable(name: &str, at: usize) -> Result<Piece, FormatError> {
    if let Some((_, found)) = VARIABLES.iter().find(|(known, _)| *known == name) {
        return Ok(Piece::Variable(*found));
    }
    let error = FormatError::new(format!("A file has no property `{name}`.")).at(at - 1..at + name.len() + 1);
    Err(error.help(match nearest(name, VARIABLES.iter().map(|(known, _)| *known)) {
        Some(near) => format!("Did you mean `{{{near}}}`?"),
        None => {
            let known: Vec<String> = VARIABLES.iter().map(|(known, _)| format!("`{{{known}}}`")).collect();
            format!("There are: {}.", known.join(", "))
        }
    }))
}

impl<'de> Deserialize<'de> for FileTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: FormatError| serde::de::Error::custom(error.message))
    }
}

impl JsonSchema for FileTemplate {
    fn schema_name() -> Cow<'static, str> {
        "FileTemplate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(FORMAT, |text| text.parse::<FileTemplate>().map(drop));
        json_schema!({ "type": "string", "format": FORMAT })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Arc;
    use thalweg_engine::testing::file_of;
    use thalweg_record::{Content, Origin, Times};

    fn rendered(template: &str, file: &mut File) -> String {
        template.parse::<FileTemplate>().unwrap().render(file).unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn it_knows_the_parts_of_names_and_paths() {
        let folder: Arc<Path> = Path::new("/in").into();
        let origin = Origin::found("in".into(), "/in/a/b.tar.gz".into(), folder, 4, Times::default());
        let mut file = File::new(origin, Content::from(b"text".to_vec()));
        file.set_name("c.txt");
        let all = "{name} {stem} {extension} {suffix} {original_name} {original_stem} {original_extension} {folder}";
        assert_eq!(rendered(all, &mut file), "c.txt c txt .txt b.tar.gz b.tar gz a/");
        assert_eq!(rendered("{original_path}{original_suffix}", &mut file), "/in/a/b.tar.gz.gz");
        assert_eq!(rendered("{{{id}}}", &mut file), format!("{{{}}}", file.origin().id()));
        assert_eq!(rendered("{date}", &mut file).len(), 10);
        let reason =
            |template: &str, file: &mut File| match template.parse::<FileTemplate>().unwrap().render(file) {
                Err(FileError::Rejected(problem)) => problem.reason,
                other => panic!("{other:?}"),
            };
        assert_eq!(reason("{path}", &mut file), "the file has no path: its content is in memory");
        assert_eq!(reason("{hash}", &mut file), "the file has no `{hash}`: put the transform `hash` before");
        file.set_note(HASH, "cafe");
        assert_eq!(rendered("{hash}", &mut file), "cafe");
    }

    #[test]
    fn the_type_of_the_content_gives_an_extension_where_there_was_one() {
        let mut image = file_of("photo", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
        assert_eq!(rendered("{stem}{mime_suffix} {stem}{retyped_suffix}", &mut image), "photo.png photo");
        let mut unknown = file_of("x.bin", &[0, 1, 2, 3]);
        assert_eq!(rendered("{original_stem}{retyped_suffix}|{mime_extension}", &mut unknown), "x|");
        let mut text = file_of("r.log", b"a line\n");
        assert_eq!(rendered("{original_stem}{retyped_suffix}", &mut text), "r.txt");
        assert_eq!(rendered("{original_stem}", &mut file_of(".bashrc", b"")), ".bashrc");
    }

    #[test]
    fn names_that_are_no_text_keep_their_bytes() {
        let name = OsStr::from_bytes(b"a\xff b'\n.jpg");
        let mut file = File::new(Origin::new("in".into(), name.to_owned(), 0), Content::from(Vec::new()));
        let rendered = "{stem}-1.{extension}".parse::<FileTemplate>().unwrap().render(&mut file).unwrap();
        assert_eq!(rendered.as_bytes(), b"a\xff b'\n-1.jpg");
    }

    #[test]
    fn what_is_wrong_with_a_template_is_said_with_its_place() {
        let mistake = |text: &str| text.parse::<FileTemplate>().unwrap_err();
        assert_eq!(mistake("x{nane}").help.as_deref(), Some("Did you mean `{name}`?"));
        assert_eq!(mistake("x{nane}").range, Some(1..7));
        assert_eq!(mistake("{name").message, "A `{` without its `}`.");
        assert_eq!(mistake("name}").message, "A `}` without its `{`.");
    }
}
