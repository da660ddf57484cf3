//! Compressed data, of one or several members: it takes no more memory than its window, and what was
//! compressed comes back.

use std::io::Read;

use thalweg_codec::compress::Compression;
use thalweg_codec::decompress::{Compression as Expected, Damage, Decoder, Format};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "decompress",
    components: &["decompress"],
    longest: 8 << 10,
    words: &["\u{1f}\u{8b}\u{8}", "(\u{b5}/\u{fd}", "P*M\u{18}"],
    run,
};

/// The most bytes that are decompressed of an input.
const MOST: u64 = 4 << 20;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.choice(4) {
        0 => read(Format::Gzip, input.0),
        1 => read(Format::Zstd, input.0),
        2 => comes_back(Compression::Gzip, Format::Gzip, input.0),
        _ => comes_back(Compression::Zstd, Format::Zstd, input.0),
    }
    if let Some(Some(found)) = Expected::Auto.of(input.0) {
        assert!(input.0.len() >= 2, "{found} of {} bytes", input.0.len());
    }
}

fn read(format: Format, bytes: &[u8]) {
    let (error, consumed) = bounded(4 << 20, || {
        let mut decoder = Decoder::new(format, bytes);
        let mut buffer = vec![0; 64 << 10];
        let mut total = 0;
        let error = loop {
            match decoder.read(&mut buffer) {
                Ok(0) => break None,
                Ok(read) => total += read as u64,
                Err(error) => break Some(error),
            }
            if total > MOST {
                break None;
            }
        };
        (error, decoder.consumed())
    });
    assert!(consumed <= bytes.len() as u64, "{consumed} of {} bytes were consumed", bytes.len());
    if let Some(error) = error {
        assert!(Damage::of(&error).is_some(), "an error without its place: {error}");
    }
}

fn comes_back(compression: Compression, format: Format, bytes: &[u8]) {
    let mut encoder = compression.begin(None).expect("an encoder").expect("a format");
    let mut compressed = Vec::new();
    std::io::Write::write_all(&mut encoder, bytes).expect("memory takes it");
    encoder.end(&mut compressed).expect("memory takes it");
    let mut back = Vec::new();
    Decoder::new(format, compressed.as_slice()).read_to_end(&mut back).expect("what was compressed");
    assert_eq!(back, bytes);
    assert_eq!(compression.complete(compressed.as_slice()).ok(), Some(compressed.len() as u64));
    let cut = compressed.get(..compressed.len() - 1).unwrap_or_default();
    assert_eq!(compression.complete(cut).ok(), Some(0), "the last byte is missing");
}
