//! `thalweg-fuzz-guided`: one target under libFuzzer. `make fuzz` builds and runs it.
//!
//! The target is the one in `THALWEG_FUZZ_TARGET`. One program for all targets links once; the libraries
//! below the targets are the same.

#![no_main]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use thalweg_fuzz::{Target, target};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

/// Chooses the target. A panic that the parser itself contains is no failure, so libFuzzer's hook, which
/// aborts at every panic, is replaced.
fn begin() {
    let name = std::env::var("THALWEG_FUZZ_TARGET").unwrap_or_default();
    let Some(found) = target(&name) else {
        eprintln!("`THALWEG_FUZZ_TARGET` is `{name}`, which is not a target");
        std::process::exit(2);
    };
    std::panic::set_hook(Box::new(|_| {}));
    TARGET.get_or_init(|| found);
}

libfuzzer_sys::fuzz_target!(init: begin(), |input: &[u8]| {
    let Some(target) = TARGET.get() else { return };
    let input = input.get(..target.longest).unwrap_or(input);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        eprintln!("{}: {text}", target.name);
        std::process::abort();
    }
});
