# The proxy and the operator's command line, as a small image that does not run as root.

FROM rust:1.95-trixie AS build
# libclang: bindings to PostgreSQL's own SQL grammar are made while building.
RUN apt-get update && apt-get install -y --no-install-recommends libclang-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN cargo build --release --locked --bins

FROM debian:trixie-slim
# pg_dump copies the schema to a new shard, and must not be older than the home shard: of the newest PostgreSQL, from its own packages
# (apt.postgresql.org). pg_isready is the health check.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates postgresql-common \
    && /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y \
    && apt-get install -y --no-install-recommends postgresql-client-18 \
    && apt-get purge -y --auto-remove postgresql-common \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --home-dir / --shell /usr/sbin/nologin shardgate
COPY --from=build /build/target/release/shardgate /build/target/release/shard-rebalance /usr/local/bin/
COPY --from=build /build/LICENSE /usr/share/doc/shardgate/LICENSE
USER shardgate
# Clients; metrics and health over HTTP.
EXPOSE 6432 6433
# A file, and no variables: those would win over a file that is mounted in its place.
COPY config/container.toml /etc/shardgate/shardgate.toml
ENV SHARDGATE_CONFIG=/etc/shardgate/shardgate.toml
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=6 \
    CMD ["pg_isready", "--quiet", "--host=127.0.0.1", "--port=6432"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["shardgate"]
CMD ["serve"]
