"""What the programs of this directory share: where the proxy is, and how they tell what they have tried.

Each makes tables of its own, spreads them over the shards and leaves them there. It prints what worked, a line each, and ends with an
error where an answer differs from PostgreSQL's.
"""

import os
import urllib.parse

URL = os.environ["DRIVERS_URL"]
PARTS = urllib.parse.urlsplit(URL)
TENANTS = range(1, 31)


def worked(what):
    print(what, flush=True)


def same(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} is not {expected!r}")


def table(name):
    """A table of one row a tenant and number, and what makes it sharded."""
    return [
        f"CREATE TABLE {name} (tenant int NOT NULL, n int NOT NULL, name text, amount numeric(10,2), at timestamptz, doc jsonb, "
        "tags text[], code uuid, raw bytea, PRIMARY KEY (tenant, n))",
        f"SELECT shardgate.distribute_table('{name}', 'tenant')",
    ]
