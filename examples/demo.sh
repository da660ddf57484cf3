#!/bin/sh
# Runs the example pipelines on real input (a CSV file, the system's package log and a large JSON array) and shows the
# results. `make demo` runs this.
set -eu
cd "$(dirname "$0")"
thalweg=${1:?usage: demo.sh PATH_OF_THALWEG}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
    for file in "$@"; do
        printf '\n%s  (%s lines)\n' "$file" "$(wc -l <"$file" | tr -d ' ')"
        head -n 3 "$file" | cut -c 1-110 | sed 's/^/    /'
    done
}

rm -rf out
# The large set of flights comes from the npm registry if npm is installed; the small one is in examples/data.
if [ ! -s data/.cache/flights-20k.json ] && command -v npm >/dev/null 2>&1; then
    mkdir -p data/.cache
    if package=$(cd data/.cache && npm pack --silent vega-datasets@3.2.1 2>/dev/null); then
        tar -xzf "data/.cache/$package" -C data/.cache --strip-components=2 package/data/flights-20k.json
        rm -f "data/.cache/$package"
    else
        echo "vega-datasets could not be fetched; using the flights in examples/data instead" >&2
    fi
fi
[ -s data/.cache/flights-20k.json ] && export FLIGHTS=data/.cache/flights-20k.json
[ -r /var/log/dpkg.log ] && export DPKG_LOG=/var/log/dpkg.log

say "1. Weather: CSV to a JSON file for each kind of weather (weather.yaml)"
"$thalweg" run weather.yaml
show out/weather/*.jsonl

say "2. The package log: parsed, routed, written as CSV and JSON lines (packages.yaml)"
"$thalweg" run packages.yaml
show out/packages/*

say "3. Flights: one JSON array, split, parsed, routed, compressed (flights.yaml)"
"$thalweg" run flights.yaml
show out/flights/late.csv
ls -l out/flights | awk 'NR > 1 { printf "    %s  %s bytes\n", $9, $5 }'

say "4. Records that cannot be processed leave with a reason (errors.yaml)"
"$thalweg" run --quiet errors.yaml
show out/errors/*

say "5. A configuration of gollum, unchanged (gollum.conf)"
"$thalweg" run gollum.conf <data/dpkg.log
show out/gollum/*

say "6. Whole files: pictures checked and converted, other files put aside (photos.yaml)"
"$thalweg" run photos.yaml
ls -lR out/photos | awk '/^-/ { printf "    %s  %s bytes\n", $9, $5 }'

say "7. A service definition of capyfile, unchanged (photos-service.yml); its text file is rejected, as intended"
"$thalweg" run photos-service.yml photos:archive --compat-exit-code

say "The plan of flights.yaml"
"$thalweg" check --plan flights.yaml
