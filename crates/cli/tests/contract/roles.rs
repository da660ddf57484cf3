//! The suite of each role.

use std::path::Path;

use thalweg_testkit::cases::messages;
use thalweg_testkit::suite::{self, Report};
use thalweg_testkit::transforms;

use crate::holes::KNOWN_HOLES;
use crate::{PROGRAM, tables};

fn run(name: &'static str, suite: fn(&Path, &mut Report<'_>)) {
    let mut report = Report::new(name, KNOWN_HOLES);
    suite(Path::new(PROGRAM), &mut report);
    report.finish(&tables());
}

#[test]
fn source() {
    run("source", suite::source);
}

#[test]
fn message_sink() {
    run("message_sink", suite::message_sink);
}

#[test]
fn file_sink() {
    run("file_sink", suite::file_sink);
}

#[test]
fn message_transform() {
    let mut report = Report::new("message_transform", KNOWN_HOLES);
    transforms::message_transform(&thalweg_components::registry(), messages::ALL, &mut report);
    report.finish(&tables());
}

#[test]
fn file_transform() {
    run("file_transform", suite::file_transform);
}

#[test]
fn file_reader() {
    run("file_reader", suite::file_reader);
}

#[test]
fn large() {
    run("large", suite::large_records);
}

#[test]
fn buffer() {
    run("buffer", suite::buffer);
}
