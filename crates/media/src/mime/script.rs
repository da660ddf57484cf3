//! Programs, by the interpreter in their first line.
//!
//! Only the interpreters that Go's `mimetype` knows are known, in its spelling: a program for `/bin/sh` or
//! `/usr/bin/env python3` is plain text. Other programs check uploads with that library, so an allow list has
//! to mean the same here.

use super::types::{self as t, Type};

/// The paths of interpreters, with their arguments.
const INTERPRETERS: &[(&[&str], &Type)] = &[
    (&["/usr/local/bin/php", "/usr/bin/php", "/usr/bin/env php"], &t::PHP),
    (
        &[
            "/bin/node",
            "/usr/bin/node",
            "/bin/nodejs",
            "/usr/bin/nodejs",
            "/usr/bin/env node",
            "/usr/bin/env nodejs",
        ],
        &t::JAVASCRIPT,
    ),
    (&["/usr/bin/lua", "/usr/local/bin/lua", "/usr/bin/env lua"], &t::LUA),
    (&["/usr/bin/perl", "/usr/bin/env perl"], &t::PERL),
    (&["/usr/bin/python", "/usr/local/bin/python", "/usr/bin/env python"], &t::PYTHON),
    (
        &[
            "/usr/bin/tcl",
            "/usr/local/bin/tcl",
            "/usr/bin/env tcl",
            "/usr/bin/tclsh",
            "/usr/local/bin/tclsh",
            "/usr/bin/env tclsh",
            "/usr/bin/wish",
            "/usr/local/bin/wish",
            "/usr/bin/env wish",
        ],
        &t::TCL,
    ),
];

/// Returns the type of a program.
pub(super) fn find(text: &[u8]) -> Option<&'static Type> {
    let is_page = text.get(..5).is_some_and(|beginning| beginning.eq_ignore_ascii_case(b"<?php"));
    if is_page || [&b"<?\n"[..], b"<?\r", b"<? "].iter().any(|tag| text.starts_with(tag)) {
        return Some(&t::PHP);
    }
    let line = text.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    INTERPRETERS
        .iter()
        .find(|(paths, _)| paths.iter().any(|path| path.as_bytes() == line))
        .map(|(_, found)| *found)
}
