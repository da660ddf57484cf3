use super::*;

/// Returns an entry of an archive with this name and content.
fn entry(name: &str, content: &str) -> Vec<u8> {
    let mut entry = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    entry.extend((content.len() as u32).to_le_bytes());
    entry.extend((content.len() as u32).to_le_bytes());
    entry.extend((name.len() as u16).to_le_bytes());
    entry.extend([0, 0]);
    entry.extend(name.bytes());
    entry.extend(content.bytes());
    entry
}

fn zip(names: &[&str]) -> Vec<u8> {
    names.iter().flat_map(|name| entry(name, "content")).collect()
}

fn at(position: usize, bytes: &[u8]) -> Vec<u8> {
    let mut head = vec![0; position];
    head.extend_from_slice(bytes);
    head.resize(512.max(head.len()), 0);
    head
}

fn ftyp(brand: &[u8; 4], others: &[u8]) -> Vec<u8> {
    [&(16 + others.len() as u32).to_be_bytes(), &b"ftyp"[..], brand, &[0; 4], others].concat()
}

fn ole(stream: &str) -> Vec<u8> {
    let mut head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec();
    head.resize(1024, 0);
    head[30] = 9;
    head[48] = 1;
    let name = |text: &str| {
        let mut name: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        name.resize(128, 0);
        name
    };
    [head, name("Root Entry"), name(stream)].concat()
}

fn old_tar() -> Vec<u8> {
    let mut header = b"folder/file.txt".to_vec();
    header.resize(512, 0);
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[test]
fn files_with_signatures_are_known() {
    for (head, mime, extension) in [
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0".to_vec(), "image/jpeg", "jpg"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), "image/png", "png"),
        (b"GIF89a\x01\0\x01\0".to_vec(), "image/gif", "gif"),
        (b"RIFF\x24\0\0\0WEBPVP8 ".to_vec(), "image/webp", "webp"),
        (b"RIFF\x24\0\0\0WAVEfmt ".to_vec(), "audio/wav", "wav"),
        (b"RIFF\x24\0\0\0AVI LIST".to_vec(), "video/x-msvideo", "avi"),
        (b"II*\0\x08\0\0\0".to_vec(), "image/tiff", "tiff"),
        (b"MM\0*\0\0\0\x08".to_vec(), "image/tiff", "tiff"),
        (b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec(), "image/bmp", "bmp"),
        (b"\0\0\x01\0\x01\0\x10\x10\0\0".to_vec(), "image/x-icon", "ico"),
        (b"8BPS\0\x01".to_vec(), "image/vnd.adobe.photoshop", "psd"),
        (ftyp(b"avif", b"mif1miaf"), "image/avif", "avif"),
        (ftyp(b"heic", b"mif1heic"), "image/heic", "heic"),
        (ftyp(b"mif1", b"mif1heic"), "image/heif", "heif"),
        (ftyp(b"mif1", b"mif1avif"), "image/avif", "avif"),
        (ftyp(b"isom", b"isomiso2"), "video/mp4", "mp4"),
        (ftyp(b"mp42", b""), "video/mp4", "mp4"),
        (ftyp(b"qt  ", b""), "video/quicktime", "mov"),
        (ftyp(b"M4A ", b""), "audio/x-m4a", "m4a"),
        (ftyp(b"3gp5", b""), "video/3gpp", "3gp"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm".to_vec(), "video/webm", "webm"),
        (b"\x1a\x45\xdf\xa3\xa3\x42\x86\x81\x01\x42\x82\x88matroska".to_vec(), "video/x-matroska", "mkv"),
        (at(0, b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x13OpusHead"), "audio/ogg", "oga"),
        (at(0, b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x2a\x80theora"), "video/ogg", "ogv"),
        (b"OggS\0\x02".to_vec(), "application/ogg", "ogg"),
        (b"ID3\x04\0\0".to_vec(), "audio/mpeg", "mp3"),
        (b"\xff\xfb\x90\x64\0".to_vec(), "audio/mpeg", "mp3"),
        (b"\xff\xf1\x50\x80".to_vec(), "audio/aac", "aac"),
        (b"fLaC\0\0\0\x22".to_vec(), "audio/flac", "flac"),
        (b"MThd\0\0\0\x06".to_vec(), "audio/midi", "midi"),
        (b"%PDF-1.7\n".to_vec(), "application/pdf", "pdf"),
        (b"%!PS-Adobe-3.0\n".to_vec(), "application/postscript", "ps"),
        (b"{\\rtf1\\ansi".to_vec(), "text/rtf", "rtf"),
        (zip(&["a.txt"]), "application/zip", "zip"),
        (b"PK\x05\x06".to_vec(), "application/zip", "zip"),
        (
            zip(&["[Content_Types].xml", "_rels/.rels", "word/document.xml"]),
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "docx",
        ),
        (
            zip(&["[Content_Types].xml", "xl/workbook.xml"]),
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            "xlsx",
        ),
        (
            zip(&["[Content_Types].xml", "ppt/presentation.xml"]),
            "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            "pptx",
        ),
        (
            entry("mimetype", "application/vnd.oasis.opendocument.text"),
            "application/vnd.oasis.opendocument.text",
            "odt",
        ),
        (entry("mimetype", "application/epub+zip"), "application/epub+zip", "epub"),
        (zip(&["META-INF/MANIFEST.MF", "A.class"]), "application/jar", "jar"),
        (ole("WordDocument"), "application/msword", "doc"),
        (ole("Workbook"), "application/vnd.ms-excel", "xls"),
        (ole("Anything"), "application/x-ole-storage", ""),
        (b"\x1f\x8b\x08\0".to_vec(), "application/gzip", "gz"),
        (b"\x28\xb5\x2f\xfd\x04".to_vec(), "application/zstd", "zst"),
        (b"\xfd7zXZ\0\0\x04".to_vec(), "application/x-xz", "xz"),
        (b"BZh91AY&SY".to_vec(), "application/x-bzip2", "bz2"),
        (b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(), "application/x-7z-compressed", "7z"),
        (b"Rar!\x1a\x07\x01\0".to_vec(), "application/x-rar-compressed", "rar"),
        (at(257, b"ustar\x0000"), "application/x-tar", "tar"),
        (old_tar(), "application/x-tar", "tar"),
        (at(0, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0"), "application/x-executable", ""),
        (at(0, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0"), "application/x-sharedlib", "so"),
        (at(0, b"\x7fELF\x01\x02\x01\0\0\0\0\0\0\0\0\0\0\x01"), "application/x-object", ""),
        (b"MZ\x90\0".to_vec(), "application/vnd.microsoft.portable-executable", "exe"),
        (b"\xca\xfe\xba\xbe\0\0\0\x3d".to_vec(), "application/x-java-applet", "class"),
        (b"SQLite format 3\0\x10\0".to_vec(), "application/vnd.sqlite3", "sqlite"),
        (b"\0asm\x01\0\0\0".to_vec(), "application/wasm", "wasm"),
        (b"PAR1\x15\x04".to_vec(), "application/vnd.apache.parquet", "parquet"),
        (b"wOF2OTTO".to_vec(), "font/woff2", "woff2"),
        (at(128, b"DICM"), "application/dicom", "dcm"),
    ] {
        assert_eq!(detect(&head), Detected { mime, extension }, "{}", head.escape_ascii());
    }
}

#[test]
fn text_is_told_apart() {
    for (head, mime, extension) in [
        (&b""[..], "text/plain", "txt"),
        (b"Plain words.\n", "text/plain; charset=utf-8", "txt"),
        ("Grüße".as_bytes(), "text/plain; charset=utf-8", "txt"),
        (b"\xef\xbb\xbfmarked", "text/plain; charset=utf-8", "txt"),
        (b"\xff\xfea\0b\0", "text/plain; charset=utf-16le", "txt"),
        (b"\xfe\xff\0a\0b", "text/plain; charset=utf-16be", "txt"),
        (b"Gr\xfc\xdfe", "text/plain; charset=iso-8859-1", "txt"),
        (b"5 \x80", "text/plain", "txt"),
        (b"5 \x85 \xe4", "text/plain; charset=windows-1252", "txt"),
        (b"<!DOCTYPE html><p>x", "text/html; charset=utf-8", "html"),
        (b"  <html lang=en>", "text/html; charset=utf-8", "html"),
        (b"<?xml version=\"1.0\"?><a/>", "text/xml; charset=utf-8", "xml"),
        (b"<?xml version=\"1.0\"?><!-- c --><svg xmlns=\"\"/>", "image/svg+xml", "svg"),
        (b"<svg width=\"1\"/>", "image/svg+xml", "svg"),
        (b"<?xml version=\"1.0\"?><!DOCTYPE a [<!ELEMENT a ANY>]><n:rss/>", "text/xml; charset=utf-8", "xml"),
        (b"<?xml version=\"1.0\"?><rss/>", "application/rss+xml", "rss"),
        (b"<?xml version=\"1.0\"?><html>", "text/xml; charset=utf-8", "xml"),
        (b"<!-- c --><html>", "text/plain; charset=utf-8", "txt"),
        (b"see <svg> here", "image/svg+xml", "svg"),
        (b"<?xml version=\"1.0\"?>", "text/xml; charset=utf-8", "xml"),
        (b"{\"a\": [1, 2]}", "application/json", "json"),
        (b"[]", "application/json", "json"),
        (b"{\"a\": 1}\n{\"a\": 2}\n", "application/x-ndjson", "ndjson"),
        (b"{\"type\": \"FeatureCollection\", \"features\": []}", "application/geo+json", "geojson"),
        (b"{\"a\": 1", "text/plain; charset=utf-8", "txt"),
        (b"a,b\n1,2\n", "text/csv", "csv"),
        (b"a,b\n\"x\ny, z\",2", "text/csv", "csv"),
        (b"a\tb\n1\t2\n", "text/tab-separated-values", "tsv"),
        (b"Well, yes.\nNo.\n", "text/plain; charset=utf-8", "txt"),
        (b"{\"a\": 1}\n2\n", "application/x-ndjson", "ndjson"),
        (b"# c\na,b\n\n1,2\n", "text/csv", "csv"),
        (b"a,b\n1,2,3\n", "text/plain; charset=utf-8", "txt"),
        (b"a,\"b\"c\n1,2\n", "text/plain; charset=utf-8", "txt"),
        (b"a\tb\n\t2\n", "text/plain; charset=utf-8", "txt"),
        (b"<?php echo 1;", "text/x-php", "php"),
        (b"BEGIN:VCARD\r\nEND:VCARD\r\n", "text/vcard", "vcf"),
        (b"1\n00:00:01,000 --> 00:00:02,000\nHi\n", "application/x-subrip", "srt"),
        (b"\x01\x02\x03\xfe", "application/octet-stream", ""),
        (b"text with a \0 in it", "application/octet-stream", ""),
    ] {
        assert_eq!(detect(head), Detected { mime, extension }, "{}", head.escape_ascii());
    }
}

/// The answers are those of Go's `mimetype` 1.4.2, which capyfile uses.
#[test]
fn programs_are_known_by_the_interpreters_that_capyfile_knows() {
    for (head, mime) in [
        ("#!/bin/sh\n", "text/plain; charset=utf-8"),
        ("#!/bin/bash\n", "text/plain; charset=utf-8"),
        ("#!/usr/bin/env bash\n", "text/plain; charset=utf-8"),
        ("#!/usr/bin/ruby\n", "text/plain; charset=utf-8"),
        ("#!/usr/bin/env python3\n", "text/plain; charset=utf-8"),
        ("#!/usr/bin/python3\n", "text/plain; charset=utf-8"),
        ("#!/usr/bin/perl -w\n", "text/plain; charset=utf-8"),
        ("import os\n", "text/plain; charset=utf-8"),
        ("#!/usr/bin/python\n", "text/x-python"),
        ("#! /usr/bin/env python \nx", "text/x-python"),
        ("#!/usr/bin/perl\n", "text/x-perl"),
        ("#!/usr/bin/env node\n", "application/javascript"),
        ("#!/usr/bin/env php\n", "text/x-php"),
        ("<?PHP echo 1;", "text/x-php"),
        ("<? echo 1;", "text/x-php"),
        ("#!/usr/bin/lua\n", "text/x-lua"),
        ("#!/usr/bin/wish\n", "text/x-tcl"),
    ] {
        assert_eq!(detect(head.as_bytes()).mime, mime, "{head:?}");
    }
}

#[test]
fn what_the_head_cuts_through_is_as_if_it_continued() {
    let json = [&b"["[..], &b"{\"a\": 1},".repeat(1000)].concat();
    assert_eq!(detect(&json).mime, "application/json");
    let umlauts = "ä".repeat(HEAD);
    assert_eq!(detect(&[b"x", umlauts.as_bytes()].concat()).mime, "text/plain; charset=utf-8");
    assert_eq!(detect(&b"1,2,3\n".repeat(1000)).mime, "text/csv");
    assert_eq!(detect(&b"{\"a\": \"b\"}\n".repeat(1000)).mime, "application/x-ndjson");
}

#[test]
fn signatures_that_are_cut_off_are_no_panic() {
    let whole = [&b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"[..], &[0xff; 600]].concat();
    for begin in
        [&b"PK\x03\x04"[..], b"OggS\0", b"\x7fELF", b"RIFF", b"BM", b"\0\0\0\x18ftyp", b"\xff", &whole]
    {
        for end in 0..=begin.len() {
            detect(&begin[..end]);
        }
    }
}

#[test]
fn lists_of_types_are_matched() {
    let matcher =
        Matcher::new(["image/*", "Application/PDF", "text/plain; charset=utf-8", "audio/x-wav"]).unwrap();
    for yes in [
        "image/png",
        "IMAGE/webp",
        "application/pdf",
        "application/x-pdf",
        "text/plain",
        "text/plain; charset=utf-16le",
        "audio/wav",
    ] {
        assert!(matcher.matches(yes), "{yes}");
    }
    for no in ["application/zip", "text/html; charset=utf-8", "imag", "", "audio/mpeg"] {
        assert!(!matcher.matches(no), "{no}");
    }
    assert!(Matcher::new(["*/*"]).unwrap().matches("a/b"));
    assert!(!Matcher::new([""; 0]).unwrap().matches("a/b"));
    assert!(Matcher::new(["vendor/x-thing+json"]).unwrap().matches("vendor/x-thing+json"));
}

#[test]
fn what_is_no_type_is_told_with_what_may_have_been_meant() {
    for (given, declared) in [
        ("jpeg", "`jpeg` is not a MIME type; did you mean `image/jpeg`?"),
        ("jpg", "`jpg` is not a MIME type; did you mean `image/jpeg`?"),
        (
            ".docx",
            "`.docx` is not a MIME type; did you mean `application/vnd.openxmlformats-officedocument.wordprocessingml.document`?",
        ),
        ("image", "`image` is not a MIME type; did you mean `image/*`?"),
        ("*/png", "`*/png` is not a MIME type; did you mean `image/png`?"),
        (
            "x y/z",
            "`x y/z` is not a MIME type; write it as `image/png`, or `image/*` for all types of a family",
        ),
        ("", "`` is not a MIME type; write it as `image/png`, or `image/*` for all types of a family"),
    ] {
        assert_eq!(Matcher::new([given]).unwrap_err().to_string(), declared);
    }
}

#[test]
fn extensions_are_found_by_any_name_of_a_type() {
    assert_eq!(extension_of("image/jpeg"), Some("jpg"));
    assert_eq!(extension_of("image/jpg"), Some("jpg"));
    assert_eq!(extension_of("text/html; charset=utf-8"), Some("html"));
    assert_eq!(extension_of("application/octet-stream"), None);
    assert_eq!(extension_of("no/such"), None);
}

#[test]
fn no_two_types_have_the_same_name() {
    let names = types::ALL.iter().flat_map(|known| std::iter::once(&known.name).chain(known.aliases));
    let mut seen = std::collections::HashSet::new();
    for name in names {
        // Two forms of the same databases, with a suffix each.
        assert!(seen.insert(name) || *name == "application/x-msaccess", "{name}");
    }
}

proptest::proptest! {
    #[test]
    fn anything_is_something(head: Vec<u8>) {
        proptest::prop_assert!(!detect(&head).mime.is_empty());
    }
}
