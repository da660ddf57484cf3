//! The machine and the limits that a process has on it.

use std::fs::File;
use std::io::Read;

use serde_json::{Value, json};
use thalweg_job::{Limits, cores, descriptor_limit};

use crate::print::now;

/// At most this many bytes of a file are read.
const LONGEST: u64 = 64 << 10;

/// Facts about the machine, without its name and addresses.
pub(super) fn facts() -> Value {
    let Limits { memory, processors } = Limits::of_this_process();
    json!({
        "time": now(),
        "system": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
        "kernel": text_of("/proc/sys/kernel/osrelease"),
        "distribution": distribution(),
        "threads": cores(),
        "open_files": descriptor_limit(),
        "memory_bytes": memory_of_the_machine(),
        "container": { "memory_bytes": memory, "processors": processors },
    })
}

fn text_of(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

fn distribution() -> Option<String> {
    let text = text_of("/etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn memory_of_the_machine() -> Option<u64> {
    let text = text_of("/proc/meminfo")?;
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))?;
    Some(kibibytes.trim().parse::<u64>().ok()? * 1024)
}
