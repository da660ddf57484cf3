#!/usr/bin/env bash
# Runs the fuzz targets under libFuzzer, guided by coverage, one after the other: `make fuzz`.
#
#   FUZZ_SECONDS=600   the time of each target
#   FUZZ=json_columns  only these targets
#
# What reached new code is kept in `fuzz/corpus/TARGET` of cargo's target directory, and the next run begins with it. An
# input that fails is kept in `fuzz/failed`, and the next target is run.
#
# cargo-fuzz is not needed: it sets these flags of the compiler, and would link a program for each target.
set -uo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
seconds=${FUZZ_SECONDS:-600}
host=$(rustc -vV | sed -n 's/^host: //p')

coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
coverage+=" -Cllvm-args=-simplifycfg-branch-fold-threshold=0"
# With `--target`, the flags do not apply to build scripts.
RUSTFLAGS="--cfg fuzzing $coverage" cargo +nightly build --locked --profile fuzz --target "$host" \
    --target-dir "$target/guided" -p thalweg-fuzz --features guided --bin thalweg-fuzz-guided || exit
program="$target/guided/$host/fuzz/thalweg-fuzz-guided"

mkdir -p "$target/fuzz/failed"
# The stack of the program's threads: see run/threads.rs of the engine.
ulimit -s 2048
failed=0
for folder in crates/fuzz/seeds/*/; do
    name=$(basename "$folder")
    if [ -n "${FUZZ:-}" ] && [[ " $FUZZ " != *" $name "* ]]; then continue; fi
    corpus="$target/fuzz/corpus/$name"
    log="$target/fuzz/$name.log"
    mkdir -p "$corpus"
    THALWEG_FUZZ_TARGET=$name "$program" "$corpus" "$folder" -max_total_time="$seconds" -max_len=65536 -timeout=20 \
        -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$target/fuzz/failed/$name-" >"$log" 2>&1
    status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$name: ${executions:-0} inputs, $(find "$corpus" -type f | wc -l) in the corpus"
    if [ $status -ne 0 ]; then
        failed=1
        input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        grep -E "^$name: |^==[0-9]*== ERROR|^SUMMARY|memory allocation|overflow" "$log" | tail -n 3
        echo "    repeat it with: cargo run --release -p thalweg-fuzz -- repeat $name $input"
    fi
done
exit $failed
