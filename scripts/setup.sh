#!/bin/sh
# Installs what building and testing need beside a Rust toolchain, where it is missing: PostgreSQL's server programs with
# contrib, a C compiler, libclang, iproute2; and rustfmt and clippy, which a minimal toolchain lacks. `setup.sh tests`: also npm and
# pip, which fetch other versions of PostgreSQL (scripts/postgres.sh), and a JDK, pgjdbc and ActiveRecord, without which the tests go on
# and skip the programs that need them. Says what first. Does nothing, quickly, when all is there.
set -eu

missing=''
need() { missing="$missing $1"; }
wanted=''
want() { wanted="$wanted $1"; }

# Prints the directory of the newest PostgreSQL of version 15 or later: PATH, pg_config, Debian's layout.
postgres_bin() {
    for directory in \
        "$(dirname "$(readlink -f "$(command -v initdb || echo /nowhere/initdb)")")" \
        "$(pg_config --bindir 2>/dev/null || echo /nowhere)" \
        $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -rn); do
        [ -x "$directory/initdb" ] && [ -x "$directory/postgres" ] || continue
        major=$("$directory/postgres" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
        if [ "$major" -ge 15 ]; then echo "$directory"; return; fi
    done
}

has_contrib() {
    # Debian keeps each version's shared files under its number. To programs that are not its own it has nothing to add.
    version=$(basename "$(dirname "$1")")
    case "$1" in /usr/lib/postgresql/*) [ -e "/usr/share/postgresql/$version/extension/hstore.control" ] ;; esac
}

has_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] && return
    for directory in /usr/lib/llvm-*/lib /usr/lib /usr/lib64 /usr/local/lib /usr/lib/*-linux-gnu; do
        ls "$directory"/libclang.so* "$directory"/libclang-[0-9]*.so* >/dev/null 2>&1 && return
    done
    return 1
}

command -v cargo >/dev/null 2>&1 || {
    echo "setup: cargo is missing: install a Rust toolchain first" >&2
    exit 1
}
# For `make lint` and `make test` only: a build goes on without them.
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    if command -v rustup >/dev/null 2>&1; then
        echo "setup: adding rustfmt and clippy to the toolchain"
        rustup component add rustfmt clippy || echo "setup: they could not be added; make lint and make test need them" >&2
    else
        echo "setup: cargo fmt or cargo clippy is missing, and there is no rustup to add it; make lint and make test need both" >&2
    fi
fi
bin=$(postgres_bin)
[ -n "$bin" ] || need postgresql
[ -z "$bin" ] || has_contrib "$bin" || need postgresql-contrib
command -v psql >/dev/null 2>&1 || [ -x "$bin/psql" ] || need postgresql-client
command -v cc >/dev/null 2>&1 || need gcc
[ -e /usr/include/stdlib.h ] || need libc6-dev
has_libclang || need libclang-dev
if [ "${1:-}" = tests ]; then
    command -v npm >/dev/null 2>&1 || need npm
    python3 -m pip --version >/dev/null 2>&1 || need python3-pip
    command -v javac >/dev/null 2>&1 || want default-jdk-headless
    [ -e /usr/share/java/postgresql.jar ] || want libpostgresql-jdbc-java
    /usr/bin/ruby -rlogger -ractive_record -rpg -e '' >/dev/null 2>&1 || want 'ruby-activerecord ruby-pg'
fi
# Tests set the links of network namespaces down.
[ -x /sbin/ip ] || [ -x /usr/sbin/ip ] || command -v ip >/dev/null 2>&1 || need iproute2
[ -n "$missing$wanted" ] || exit 0

if [ -z "$missing" ]; then
    command -v apt-get >/dev/null 2>&1 && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1; } || {
        echo "setup: some tests of drivers are skipped without these (Debian's names):$wanted" >&2
        exit 0
    }
fi
case " $missing " in *' postgresql '*) missing="$missing postgresql-contrib postgresql-client" ;; esac
command -v apt-get >/dev/null 2>&1 || {
    echo "setup: these are missing, and there is no apt-get to install them with (Debian's names):$missing" >&2
    exit 1
}
as_root=''
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "setup: these are missing; install them as root: apt-get install$missing" >&2
        exit 1
    }
    as_root=sudo
fi
echo "setup: installing with apt-get:$missing$wanted"
# Debian's packages start a server of their own unless they are told not to; nobody asked for one.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    $as_root mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' | $as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
$as_root apt-get update -qq || [ -z "$missing" ]
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "$@"
}
# shellcheck disable=SC2086  # lists of names
if [ -n "$missing" ]; then install $missing; fi
found=''
for package in $wanted; do
    if apt-cache show "$package" >/dev/null 2>&1; then found="$found $package"; fi
done
# shellcheck disable=SC2086
if [ -n "$wanted" ]; then
    { [ -n "$found" ] && install $found && [ "$(echo $found)" = "$(echo $wanted)" ]; } ||
        echo "setup: some tests of drivers are skipped where not all of these are there:$wanted" >&2
fi
[ -n "$(postgres_bin)" ] || {
    echo "setup: this system's PostgreSQL is older than 15; see https://wiki.postgresql.org/wiki/Apt for newer ones" >&2
    exit 1
}
