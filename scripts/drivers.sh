#!/bin/sh
# Prints a directory with the drivers and frameworks that tests/drivers tries, in the versions that its requirements.txt and
# package-lock.json name: `python` to put into PYTHONPATH, and `node`, in which the programs for Node.js lie beside their packages.
#
# The packages come from PyPI and npm, once for each version of those files. Several processes may ask at once: one fetches, the
# others wait. What was fetched stands at its place when it is whole.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
programs=$root/tests/drivers
fail() { echo "drivers: $*" >&2; exit 1; }
for command in python3 node npm flock; do
    command -v "$command" >/dev/null 2>&1 || fail "$command is missing"
done
version=$( (python3 --version; node --version; cat "$programs/requirements.txt" "$programs/package-lock.json") | cksum | cut -d' ' -f1)
directory=$root/.shardgate/drivers/$version
mkdir -p "$root/.shardgate/drivers"
exec 9>"$root/.shardgate/drivers/lock"
flock 9
if [ ! -d "$directory" ]; then
    rm -rf "$directory.new" && mkdir -p "$directory.new/node"
    cp "$programs/package.json" "$programs/package-lock.json" "$directory.new/node"
    (cd "$directory.new/node" && npm ci --no-audit --no-fund --ignore-scripts --silent >&2) &
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --no-compile \
        --target "$directory.new/python" -r "$programs/requirements.txt" >&2
    wait $!
    mv "$directory.new" "$directory"
fi
cp "$programs"/*.mjs "$directory/node"
echo "$directory"
