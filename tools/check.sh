#!/usr/bin/env bash
# The edit loop: format, clippy and unit tests of the crates that changed since the last commit.
#
#   tools/check.sh                               the changed crates
#   CRATE=thalweg-transforms TEST=upper tools/check.sh   one crate, the tests whose names contain TEST
#
# Dependencies are taken from the release build, so nothing is compiled a second time; our own crates are compiled
# incrementally and with little optimisation (.cargo/develop.toml).
set -euo pipefail
cd "$(dirname "$0")/.."
cargo="${CARGO:-cargo} --config .cargo/develop.toml"

# The packages with changed files, by their Cargo.toml.
changed() {
    { git diff --name-only HEAD; git ls-files --others --exclude-standard; } | while read -r file; do
        folder=$(dirname "$file")
        while [ "$folder" != . ] && [ ! -f "$folder/Cargo.toml" ]; do folder=$(dirname "$folder"); done
        [ "$folder" = . ] || sed -n 's/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1
    done | sort -u
}

crates=${CRATE:-$(changed)}
if [ -z "$crates" ]; then
    echo "no crate changed since the last commit; name one: make check CRATE=thalweg-transforms"
    exit 0
fi
# The registry is selected as well, so that dependencies have the features of the release build. Without it, cargo would
# compile Arrow and other crates again with fewer features.
packages=(-p thalweg-components)
for crate in $crates; do packages+=(-p "$crate"); done
# `cargo fmt` does not see modules that the macro `components!` declares.
git ls-files -co --exclude-standard '*.rs' | xargs rustfmt --edition 2024 --check
if [ -z "${TEST:-}" ]; then
    $cargo clippy --release --locked "${packages[@]}" --all-targets -- -D warnings
fi
$cargo test --release --locked "${packages[@]}" --lib --bins ${TEST:+"$TEST"}
