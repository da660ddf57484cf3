//! Lines of a file.

use pyo3::prelude::*;

use super::opened::Opened;

/// The number of bytes searched first.
const FIRST: u64 = 256;
/// The maximum number of bytes searched at once.
const MOST: u64 = 64 << 10;

/// Returns the line that starts at a position, with its newline, but at most `most` bytes of it.
///
/// # Errors
/// As for [`Opened::read`].
pub fn line(py: Python<'_>, file: &Opened, position: u64, most: u64) -> PyResult<Vec<u8>> {
    let mut line = Vec::new();
    let mut size = FIRST;
    loop {
        let done = line.len() as u64;
        let piece = file.read(py, position.saturating_add(done), size.min(most - done))?;
        let bytes = piece.as_bytes();
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                line.extend_from_slice(bytes.get(..=end).unwrap_or_default());
                return Ok(line);
            }
            None => line.extend_from_slice(bytes),
        }
        if bytes.is_empty() || line.len() as u64 >= most {
            return Ok(line);
        }
        size = (size * 4).min(MOST);
    }
}
