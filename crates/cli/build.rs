//! Finds out the commit that the program is built from, for `thalweg --version`.
//!
//! `THALWEG_COMMIT` in the environment takes precedence: `0123456789 2026-01-31`. Without it git is asked,
//! and only about this repository: a source archive may lie in another one. The program is rebuilt when the
//! commit changes, not for each build.

use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "THALWEG_COMMIT";

fn main() {
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    println!("cargo:rerun-if-changed=build.rs");
    let given = std::env::var(VARIABLE).ok().filter(|commit| !commit.trim().is_empty());
    let commit = given.or_else(of_git).unwrap_or_else(|| "source archive".to_owned());
    println!("cargo:rustc-env=THALWEG_BUILT_FROM={commit}");
    println!("cargo:rustc-env=THALWEG_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}

/// The commit and its date, if the package lies in its own repository.
fn of_git() -> Option<String> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let root = package.parent()?.parent()?.canonicalize().ok()?;
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        return None;
    }
    let commit = git(&root, &["log", "-1", "--abbrev=10", "--format=%h %cs"])?;
    // A path that does not exist would cause a rebuild each time.
    let branch = git(&root, &["symbolic-ref", "--quiet", "HEAD"]);
    let places = ["HEAD", "packed-refs"].into_iter().map(str::to_owned).chain(branch);
    for place in places {
        let path = git(&root, &["rev-parse", "--git-path", &place]).map(|path| root.join(path));
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    Some(commit)
}

/// Returns what a command of git prints, if it succeeds.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
