//! Base64 with a configurable alphabet.

use base64::alphabet::{Alphabet, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use thalweg_engine::Mistake;

/// Returns an encoder and decoder for this alphabet, or the standard one. It writes padding, and accepts
/// input with or without padding.
///
/// # Errors
/// If the alphabet is invalid.
pub(crate) fn base64(alphabet: Option<&str>) -> Result<GeneralPurpose, String> {
    let alphabet = match alphabet {
        Some(text) => Alphabet::new(text).map_err(|error| error.to_string())?,
        None => STANDARD,
    };
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    Ok(GeneralPurpose::new(&alphabet, config))
}

/// Returns the mistake in an alphabet, if there is one.
pub(crate) fn check_alphabet(alphabet: Option<&str>) -> Vec<Mistake> {
    let Err(reason) = base64(alphabet) else { return Vec::new() };
    let message = format!("This is not an alphabet of base64: {reason}.");
    vec![
        Mistake::new("alphabet", message)
            .help("It has 64 different printable characters of ASCII, without `=`."),
    ]
}
