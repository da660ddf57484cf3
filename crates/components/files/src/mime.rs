//! The types of files, by their content.

use std::sync::Arc;

use thalweg_engine::FileError;
use thalweg_media::mime;
use thalweg_record::File;

use crate::content::{open, unreadable};

/// The type of a file's content, which the file then remembers.
///
/// # Errors
/// If it cannot be read.
pub fn of(file: &mut File) -> Result<Arc<str>, FileError> {
    if let Some(known) = file.mime() {
        return Ok(known.clone());
    }
    let found = look(file)?;
    file.set_mime(found.clone());
    Ok(found)
}

/// The type of a file's content, for those who may not change the file.
///
/// # Errors
/// If it cannot be read.
pub fn look(file: &File) -> Result<Arc<str>, FileError> {
    if let Some(known) = file.mime() {
        return Ok(known.clone());
    }
    let head = open(file)?.head(mime::HEAD).map_err(|error| unreadable(&error))?;
    Ok(mime::detect(&head).mime.into())
}

/// The extension that files of a type have, without a dot; nothing where there is none.
pub fn extension(mime: &str) -> &'static str {
    mime::extension_of(mime).unwrap_or_default()
}
