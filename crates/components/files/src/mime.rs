//! Detects the types of files from their content.

use std::sync::Arc;

use thalweg_engine::FileError;
use thalweg_media::mime;
use thalweg_record::File;

use crate::content;

/// Returns the media type of a file's content, and stores it in the file.
///
/// # Errors
/// If the content cannot be read.
pub fn of(file: &mut File) -> Result<Arc<str>, FileError> {
    if let Some(known) = file.mime() {
        return Ok(known.clone());
    }
    let found = look(file)?;
    file.set_mime(found.clone());
    Ok(found)
}

/// Returns the media type of a file's content without changing the file.
///
/// # Errors
/// If the content cannot be read.
pub fn look(file: &File) -> Result<Arc<str>, FileError> {
    if let Some(known) = file.mime() {
        return Ok(known.clone());
    }
    let head = content::head(file, mime::HEAD)?;
    Ok(mime::detect(&head).mime.into())
}

/// Returns the usual extension of a media type, without a dot, or an empty string.
pub fn extension(mime: &str) -> &'static str {
    mime::extension_of(mime).unwrap_or_default()
}
