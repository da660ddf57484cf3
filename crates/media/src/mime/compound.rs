//! Containers that several formats share: the format is determined by data further inside.

use memchr::memmem;

use super::types::{self as t, Type};

type Found = Option<&'static Type>;

/// Reads four bytes as a big-endian number.
fn be32(head: &[u8], at: usize) -> Option<u32> {
    head.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Reads four bytes as a little-endian number.
fn le32(head: &[u8], at: usize) -> Option<u32> {
    head.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn has(head: &[u8], at: usize, bytes: &[u8]) -> bool {
    head.get(at..).is_some_and(|rest| rest.starts_with(bytes))
}

/// An animated PNG has an `acTL` chunk before its first pixels.
pub(super) fn png(head: &[u8]) -> Found {
    Some(if has(head, 37, b"acTL") { &t::APNG } else { &t::PNG })
}

pub(super) fn riff(head: &[u8]) -> Found {
    match head.get(8..12)? {
        b"WEBP" => Some(&t::WEBP),
        b"WAVE" => Some(&t::WAV),
        b"AVI " => Some(&t::AVI),
        b"QLCM" => Some(&t::QCP),
        _ => None,
    }
}

pub(super) fn iff(head: &[u8]) -> Found {
    (head.get(8..12)? == b"AIFF").then_some(&t::AIFF)
}

/// A time zone has at least one type of local time, and a known version.
pub(super) fn time_zone(head: &[u8]) -> Found {
    let has_version = matches!(head.get(4)?, 0 | b'2' | b'3');
    (has_version && head.len() >= 44 && be32(head, 36)? != 0).then_some(&t::TZIF)
}

/// An archive of InstallShield, by its version.
pub(super) fn install_shield(head: &[u8]) -> Found {
    matches!(head.get(6..8)?, [0, 1 | 2 | 4]).then_some(&t::INSTALL_SHIELD)
}

/// A file of shapes, or the index of one: only the first has a known type of shape after its header.
pub(super) fn shape(head: &[u8]) -> Found {
    if head.get(8..20)? != [0; 12] || le32(head, 28)? != 1000 {
        return None;
    }
    let is_shape = |kind| matches!(kind, 0 | 1 | 3 | 5 | 8 | 11 | 13 | 15 | 18 | 21 | 23 | 25 | 28 | 31);
    Some(if le32(head, 108).is_some_and(is_shape) { &t::SHP } else { &t::SHX })
}

/// A font for pages, by its version.
pub(super) fn embedded_font(head: &[u8]) -> Found {
    matches!(head.get(8..11)?, [2, 0, 1 | 2] | [1, 0, 0]).then_some(&t::EOT)
}

/// A text may also begin with `BM`, so the header size after it must be a known one.
pub(super) fn bmp(head: &[u8]) -> Found {
    matches!(le32(head, 14)?, 12 | 16 | 40 | 52 | 56 | 64 | 108 | 124).then_some(&t::BMP)
}

/// An icon has at least one picture, and the reserved byte of the first one is zero.
pub(super) fn icon(head: &[u8]) -> Found {
    (head.get(4..6)? != [0, 0] && head.get(9) == Some(&0)).then_some(&t::ICO)
}

pub(super) fn jpeg_2000(head: &[u8]) -> Found {
    Some(match head.get(20..24) {
        Some(b"jpx ") => &t::JPX,
        Some(b"jpm ") => &t::JPM,
        _ => &t::JP2,
    })
}

/// An MPEG audio frame has no signature, only a bit pattern.
pub(super) fn mpeg_audio(head: &[u8]) -> Found {
    let (second, third) = (*head.get(1)?, *head.get(2)?);
    if second & 0xf6 == 0xf0 {
        // ADTS: layer 0, and a sampling rate that exists.
        return ((third >> 2) & 0x0f < 13).then_some(&t::AAC);
    }
    let is_layer_3 = second & 0xe6 == 0xe2 && second & 0x18 != 0x08;
    let has_rates = third >> 4 != 15 && third >> 4 != 0 && (third >> 2) & 3 != 3;
    (is_layer_3 && has_rates).then_some(&t::MP3)
}

/// The first packet of an Ogg file, after the page header, determines its content.
pub(super) fn ogg(head: &[u8]) -> Found {
    let packet = head.get(28..).unwrap_or_default();
    let begins = |bytes: &[u8]| packet.starts_with(bytes);
    if begins(b"\x7fFLAC") || begins(b"\x01vorbis") || begins(b"OpusHead") || begins(b"Speex  ") {
        return Some(&t::AUDIO_OGG);
    }
    let is_video = begins(b"\x80theora") || begins(b"fishead\0") || begins(b"\x01video\0");
    Some(if is_video { &t::VIDEO_OGG } else { &t::OGG })
}

pub(super) fn matroska(head: &[u8]) -> Found {
    let beginning = head.get(..head.len().min(128))?;
    if memmem::find(beginning, b"webm").is_some() {
        return Some(&t::WEBM);
    }
    memmem::find(beginning, b"matroska").map(|_| &t::MKV)
}

/// Detects the type from the brand of an ISO media file. Generic picture brands defer to their compatible
/// brands.
pub(super) fn ftyp(head: &[u8]) -> Found {
    let brand: &[u8; 4] = head.get(8..)?.first_chunk()?;
    Some(match brand {
        b"avif" | b"avis" => &t::AVIF,
        b"heic" | b"heix" => &t::HEIC,
        b"hevc" | b"hevx" => &t::HEIC_SEQUENCE,
        b"mif1" | b"heim" | b"heis" | b"avic" => picture(head),
        b"msf1" | b"hevm" | b"hevs" | b"avcs" => &t::HEIF_SEQUENCE,
        b"qt  " | b"mqt " => &t::MOV,
        b"M4A " => &t::M4A,
        b"M4B " | b"M4P " | b"F4A " | b"F4B " => &t::AUDIO_MP4,
        b"M4V " | b"M4VH" | b"M4VP" => &t::M4V,
        b"jp2 " => &t::JP2,
        [b'3', b'g', b'2', _] => &t::THREE_G2,
        [b'3', b'g', b'p' | b'e' | b'r' | b's', _] => &t::THREE_GP,
        _ => &t::MP4,
    })
}

fn picture(head: &[u8]) -> &'static Type {
    let end = be32(head, 0).map_or(16, |size| size as usize).min(head.len());
    let brands = head.get(16..end).unwrap_or_default().chunks_exact(4);
    if brands.clone().any(|brand| brand == b"avif") { &t::AVIF } else { &t::HEIF }
}

pub(super) fn elf(head: &[u8]) -> Found {
    let is_big_endian = head.get(5) == Some(&2);
    let kind = match head.get(16..18) {
        Some([first, second]) if is_big_endian => u16::from_be_bytes([*first, *second]),
        Some([first, second]) => u16::from_le_bytes([*first, *second]),
        _ => 0,
    };
    Some(match kind {
        1 => &t::ELF_OBJECT,
        2 => &t::ELF_EXECUTABLE,
        3 => &t::ELF_LIBRARY,
        4 => &t::ELF_CORE,
        _ => &t::ELF,
    })
}

/// Java classes and Apple's fat binaries begin alike. The next number is a version above 40 in a class, and
/// the number of architectures in a binary.
pub(super) fn fat_or_class(head: &[u8]) -> Found {
    Some(if be32(head, 4)? & 0xffff > 40 { &t::CLASS } else { &t::MACH_O })
}

/// Detects an archive from before there was a signature: the checksum of its header must be right.
pub(super) fn old_tar(head: &[u8]) -> Found {
    let header = head.get(..512)?;
    let digits = header.get(148..156)?;
    if !digits.first().is_some_and(|first| matches!(first, b' ' | b'0'..=b'7')) {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    let checksum = u32::from_str_radix(text.trim_matches([' ', '\0']), 8).ok()?;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let without: u32 = digits.iter().map(|byte| u32::from(*byte)).sum();
    (sum - without + 8 * 32 == checksum && header.first() != Some(&0)).then_some(&t::TAR)
}

/// Detects the type of an archive by the names of its entries.
pub(super) fn zip(head: &[u8]) -> Found {
    for (number, at) in memmem::find_iter(head, b"PK\x03\x04").enumerate() {
        let Some(entry) = head.get(at..) else { break };
        let length = entry.get(26..28).map_or(0, |bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8);
        let end = (30 + length).min(entry.len());
        let name = entry.get(30..end).unwrap_or_default();
        if number == 0
            && name == b"mimetype"
            && let Some(found) = declared(entry.get(end..).unwrap_or_default())
        {
            return Some(found);
        }
        let begins = |text: &str| name.starts_with(text.as_bytes());
        let found = match () {
            () if begins("word/") => &t::DOCX,
            () if begins("xl/") => &t::XLSX,
            () if begins("ppt/") => &t::PPTX,
            () if begins("visio/") => &t::VSDX,
            () if begins("AndroidManifest.xml") || begins("classes.dex") => &t::APK,
            () if begins("META-INF/") => &t::JAR,
            () => continue,
        };
        return Some(found);
    }
    Some(&t::ZIP)
}

/// Returns the type that an archive declares in its first entry, which is not compressed.
fn declared(content: &[u8]) -> Found {
    // A template before the document whose name is the beginning of its own.
    let known = [
        &t::EPUB,
        &t::OTT,
        &t::ODT,
        &t::OTS,
        &t::ODS,
        &t::OTP,
        &t::ODP,
        &t::OTG,
        &t::ODG,
        &t::ODF,
        &t::ODC,
        &t::SXC,
    ];
    known.into_iter().find(|known| content.starts_with(known.name.as_bytes()))
}

/// Detects the content of an OLE file by its directory, which may be anywhere. If it is not within the head,
/// only the container is known.
pub(super) fn ole(head: &[u8]) -> Found {
    let sector: usize = if head.get(30) == Some(&12) { 4096 } else { 512 };
    let begin = le32(head, 48).map_or(0, |number| (number as usize).saturating_add(1).saturating_mul(sector));
    let directory = head.get(begin..).unwrap_or_default();
    for entry in directory.chunks(128).take(16) {
        let name: Vec<u8> = entry.iter().take(64).step_by(2).copied().take_while(|byte| *byte != 0).collect();
        match name.as_slice() {
            b"WordDocument" => return Some(&t::DOC),
            b"Workbook" | b"Book" => return Some(&t::XLS),
            b"PowerPoint Document" => return Some(&t::PPT),
            name if name.starts_with(b"__substg1.0") || name.starts_with(b"__properties_version1") => {
                return Some(&t::MSG);
            }
            _ => {}
        }
    }
    Some(&t::OLE)
}
