//! The hash algorithms, for files and for texts.

use std::fmt;
use std::io::Write;

use schemars::JsonSchema;
use serde::Deserialize;
use sha2::Digest as _;
use xxhash_rust::xxh3::Xxh3;

/// A hash algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-1.
    Sha1,
    /// MD5.
    Md5,
    /// BLAKE3.
    Blake3,
    /// XXH3, 64 bits.
    Xxh3,
    /// CRC-32C (Castagnoli).
    Crc32c,
}

impl Algorithm {
    /// Returns the extension of files that contain such a hash, without a dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha1 => "sha1",
            Self::Md5 => "md5",
            Self::Blake3 => "b3",
            Self::Xxh3 => "xxh3",
            Self::Crc32c => "crc32c",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "SHA-256",
            Self::Sha1 => "SHA-1",
            Self::Md5 => "MD5",
            Self::Blake3 => "BLAKE3",
            Self::Xxh3 => "XXH3",
            Self::Crc32c => "CRC-32C",
        })
    }
}

/// The hash of the bytes that were read so far.
pub enum Digest {
    /// SHA-256.
    Sha256(sha2::Sha256),
    /// SHA-1.
    Sha1(sha1::Sha1),
    /// MD5.
    Md5(md5::Md5),
    /// BLAKE3.
    Blake3(Box<blake3::Hasher>),
    /// XXH3, 64 bits.
    Xxh3(Box<Xxh3>),
    /// CRC-32C.
    Crc32c(u32),
}

impl Digest {
    /// Starts a hash.
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(sha2::Sha256::new()),
            Algorithm::Sha1 => Self::Sha1(sha1::Sha1::new()),
            Algorithm::Md5 => Self::Md5(md5::Md5::new()),
            Algorithm::Blake3 => Self::Blake3(Box::new(blake3::Hasher::new())),
            Algorithm::Xxh3 => Self::Xxh3(Box::new(Xxh3::new())),
            Algorithm::Crc32c => Self::Crc32c(0),
        }
    }

    /// Adds bytes to the hash.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Xxh3(hasher) => hasher.update(bytes),
            Self::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
        }
    }

    /// Appends the hash in lowercase hexadecimal digits.
    pub fn write(self, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = match self {
            Self::Sha256(hasher) => write!(out, "{:x}", hasher.finalize()),
            Self::Sha1(hasher) => write!(out, "{:x}", hasher.finalize()),
            Self::Md5(hasher) => write!(out, "{:x}", hasher.finalize()),
            Self::Blake3(hasher) => write!(out, "{}", hasher.finalize().to_hex()),
            Self::Xxh3(hasher) => write!(out, "{:016x}", hasher.digest()),
            Self::Crc32c(sum) => write!(out, "{sum:08x}"),
        };
    }

    /// Returns the hash in lowercase hexadecimal digits.
    pub fn finish(self) -> String {
        let mut digits = Vec::with_capacity(64);
        self.write(&mut digits);
        String::from_utf8(digits).unwrap_or_default()
    }
}
