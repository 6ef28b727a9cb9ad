# The gateway in a container: docker build -t ipfrs . Its settings are environment variables (IPFRS_SECTION_KEY); the
# repo is in the volume. docs/OPERATIONS.md says how to run it.
FROM rust:1.95-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --locked --profile dist --package ipfrs-cli && cp target/dist/ipfrs-cli /ipfrs-cli

FROM debian:bookworm-slim
# Certificates of servers that content is fetched from.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --user-group --no-create-home --home-dir /var/lib/ipfrs ipfrs \
    && install -d -m 0700 -o ipfrs -g ipfrs /var/lib/ipfrs
COPY --from=build /ipfrs-cli /usr/local/bin/ipfrs-cli
# Other containers reach the gateway. Content is public; all else needs a key: ipfrs-cli auth key create.
# The repo is below the volume, so that a backup can be restored as a whole.
ENV IPFRS_PATH=/var/lib/ipfrs/repo \
    IPFRS_AUTH_ENABLED=true \
    IPFRS_SERVER_HOST=0.0.0.0 \
    IPFRS_GRPC_HOST=0.0.0.0
USER 10001:10001
VOLUME /var/lib/ipfrs
EXPOSE 8080 50051
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["ipfrs-cli", "gateway", "status", "--ready"]
ENTRYPOINT ["ipfrs-cli"]
CMD ["gateway", "start"]
