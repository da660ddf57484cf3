//! The bytes that files begin with.
//!
//! Most signatures are at the very beginning, so the first byte of a file leaves a handful of them to
//! compare. If several formats share a signature, as containers do, `compound` decides.

use std::sync::LazyLock;

use super::compound;
use super::types::{self as t, Type};

/// The meaning of a signature.
#[derive(Clone, Copy)]
enum Means {
    /// This type.
    Is(&'static Type),
    /// The result of a function that looks further; `None` ignores the signature.
    Ask(fn(&[u8]) -> Option<&'static Type>),
}
use Means::{Ask, Is};

/// Signatures at the beginning. A longer one comes before a shorter one that is its prefix.
static SIGNATURES: &[(&[u8], Means)] = &[
    (b"\xff\xd8\xff", Is(&t::JPEG)),
    (b"\x89PNG\r\n\x1a\n", Ask(compound::png)),
    (b"GIF87a", Is(&t::GIF)),
    (b"GIF89a", Is(&t::GIF)),
    (b"RIFF", Ask(compound::riff)),
    (b"II*\0", Is(&t::TIFF)),
    (b"MM\0*", Is(&t::TIFF)),
    (b"II+\0", Is(&t::TIFF)),
    (b"MM\0+", Is(&t::TIFF)),
    (b"BM", Ask(compound::bmp)),
    (b"\0\0\x01\0", Ask(compound::icon)),
    (b"8BPS", Is(&t::PSD)),
    (b"\xff\x0a", Is(&t::JXL)),
    (b"\0\0\0\x0cJXL \r\n\x87\n", Is(&t::JXL)),
    (b"\0\0\0\x0cjP  \r\n\x87\n", Ask(compound::jpeg_2000)),
    (b"\0\0\0\x0cJXS \r\n\x87\n", Is(&t::JXS)),
    (b"II\xbc\x01", Is(&t::JXR)),
    (b"/* XPM */", Is(&t::XPM)),
    (b"icns", Is(&t::ICNS)),
    (b"gimp xcf", Is(&t::XCF)),
    (b"AT&TFORM", Is(&t::DJVU)),
    (b"BPG\xfb", Is(&t::BPG)),
    (b"AC10", Is(&t::DWG)),
    (b"#?RADIANCE\n", Is(&t::HDR)),
    (b"ID3", Is(&t::MP3)),
    (b"\xff", Ask(compound::mpeg_audio)),
    (b"fLaC\0\0\0\x22", Is(&t::FLAC)),
    (b"FORM", Ask(compound::iff)),
    (b"MThd", Is(&t::MIDI)),
    (b"#!AMR", Is(&t::AMR)),
    (b"MAC ", Is(&t::APE)),
    (b".snd", Is(&t::AU)),
    (b"Creative Voice File", Is(&t::VOC)),
    (b"MPCK", Is(&t::MUSEPACK)),
    (b"#EXTM3U", Is(&t::M3U)),
    (b".RMF", Is(&t::RMVB)),
    (b"OggS\0", Ask(compound::ogg)),
    (b"\x1a\x45\xdf\xa3", Ask(compound::matroska)),
    (b"FLV\x01", Is(&t::FLV)),
    (b"\0\0\x01\xba", Is(&t::MPEG)),
    (b"\0\0\x01\xb3", Is(&t::MPEG)),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9", Is(&t::ASF)),
    (b"%PDF-", Is(&t::PDF)),
    (b"\n%PDF-", Is(&t::PDF)),
    (b"\xef\xbb\xbf%PDF-", Is(&t::PDF)),
    (b"%FDF", Is(&t::FDF)),
    (b"-----BEGIN PKCS7", Is(&t::PKCS7)),
    (b"%!PS-Adobe-", Is(&t::PS)),
    (b"{\\rtf", Is(&t::RTF)),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Ask(compound::ole)),
    (b"PK\x03\x04", Ask(compound::zip)),
    (b"PK\x05\x06", Is(&t::ZIP)),
    (b"PK\x07\x08", Is(&t::ZIP)),
    (b"\x1f\x8b", Is(&t::GZIP)),
    (b"\x28\xb5\x2f\xfd", Is(&t::ZSTD)),
    (b"\xfd7zXZ\0", Is(&t::XZ)),
    (b"BZh", Is(&t::BZ2)),
    (b"LZIP", Is(&t::LZIP)),
    (b"\x04\x22\x4d\x18", Is(&t::LZ4)),
    (b"7z\xbc\xaf\x27\x1c", Is(&t::SEVEN_Z)),
    (b"Rar!\x1a\x07", Is(&t::RAR)),
    (b"070707", Is(&t::CPIO)),
    (b"070701", Is(&t::CPIO)),
    (b"070702", Is(&t::CPIO)),
    (b"xar!", Is(&t::XAR)),
    (b"!<arch>\ndebian-binary", Is(&t::DEB)),
    (b"!<arch>", Is(&t::AR)),
    (b"\xed\xab\xee\xdb", Is(&t::RPM)),
    (b"drpm", Is(&t::RPM)),
    (b"MSCF\0\0\0\0", Is(&t::CAB)),
    (b"ISc(", Ask(compound::install_shield)),
    (b"\x7fELF", Ask(compound::elf)),
    (b"MZ", Is(&t::EXE)),
    (b"\xca\xfe\xba\xbe", Ask(compound::fat_or_class)),
    (b"\xfe\xed\xfa\xce", Is(&t::MACH_O)),
    (b"\xfe\xed\xfa\xcf", Is(&t::MACH_O)),
    (b"\xce\xfa\xed\xfe", Is(&t::MACH_O)),
    (b"\xcf\xfa\xed\xfe", Is(&t::MACH_O)),
    (b"\0asm", Is(&t::WASM)),
    (b"SQLite format 3\0", Is(&t::SQLITE)),
    (b"TZif", Ask(compound::time_zone)),
    (b"L\0\0\0\x01\x14\x02\0", Is(&t::LNK)),
    (b"NES\x1a", Is(&t::NES)),
    (b"glTF\x02\0\0\0", Is(&t::GLB)),
    (b"glTF\x01\0\0\0", Is(&t::GLB)),
    (b"\0\0\x27\x0a\0\0\0\0", Ask(compound::shape)),
    (b"ITOLITLS", Is(&t::LIT)),
    (b"PAR1", Is(&t::PARQUET)),
    (b"\x89HDF\r\n\x1a\n", Is(&t::HDF5)),
    (b"SIMPLE  =                    T", Is(&t::FITS)),
    (b"CWS", Is(&t::SWF)),
    (b"FWS", Is(&t::SWF)),
    (b"ZWS", Is(&t::SWF)),
    (b"Cr24", Is(&t::CRX)),
    (b"d8:announce", Is(&t::TORRENT)),
    (b"\0\x01\0\0Standard ACE DB", Is(&t::ACCDB)),
    (b"\0\x01\0\0Standard Jet DB", Is(&t::MDB)),
    (b"\0\x01\0\0", Is(&t::TTF)),
    (b"ttcf\0\x01\0\0", Is(&t::TTC)),
    (b"ttcf\0\x02\0\0", Is(&t::TTC)),
    (b"OTTO\0", Is(&t::OTF)),
    (b"wOFF", Is(&t::WOFF)),
    (b"wOF2", Is(&t::WOFF2)),
    (b"WARC/1.", Is(&t::WARC)),
];

/// Signatures at other positions.
static DEEPER: &[(usize, &[u8], Means)] = &[
    (4, b"ftyp", Ask(compound::ftyp)),
    (4, b"moov", Is(&t::MOV)),
    (4, b"mdat", Is(&t::MOV)),
    (4, b"wide", Is(&t::MOV)),
    (20, b"GPAT", Is(&t::PAT)),
    (20, b"GIMP", Is(&t::GBR)),
    (34, b"LP", Ask(compound::embedded_font)),
    (60, b"BOOKMOBI", Is(&t::MOBI)),
    (128, b"DICM", Is(&t::DICOM)),
    (257, b"ustar", Is(&t::TAR)),
];

/// The indexes of the signatures at the beginning, by their first byte.
static BY_FIRST: LazyLock<Vec<Vec<usize>>> = LazyLock::new(|| {
    (0..=u8::MAX)
        .map(|first| {
            let begins =
                |at: &usize| SIGNATURES.get(*at).is_some_and(|(bytes, _)| bytes.first() == Some(&first));
            (0..SIGNATURES.len()).filter(begins).collect()
        })
        .collect()
});

/// Returns the type whose signature `head` has.
pub(super) fn find(head: &[u8]) -> Option<&'static Type> {
    let first = usize::from(*head.first()?);
    let candidates = BY_FIRST.get(first).map_or(&[][..], Vec::as_slice).iter();
    let beginning =
        candidates.filter_map(|&at| SIGNATURES.get(at)).filter(|(bytes, _)| head.starts_with(bytes));
    let deeper =
        DEEPER.iter().filter(|(at, bytes, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(bytes)));
    beginning
        .map(|(_, means)| means)
        .chain(deeper.map(|(_, _, means)| means))
        .find_map(|means| match means {
            Is(found) => Some(*found),
            Ask(look) => look(head),
        })
        .or_else(|| compound::old_tar(head))
}
