//! Compares secrets.

/// True if two secrets are equal. The duration of the comparison does not reveal where they differ, only
/// whether their lengths do.
///
/// ```
/// assert!(thalweg_redact::is_same_secret(b"token", b"token"));
/// assert!(!thalweg_redact::is_same_secret(b"token", b"taken"));
/// ```
#[must_use]
pub fn is_same_secret(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}
