# docker build --build-arg VERSION=v0.1.0 .
FROM golang:1.26 AS build
ARG VERSION=""
WORKDIR /src
COPY go.mod go.sum ./
COPY client/go.mod client/go.sum client/
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -X main.released=$VERSION" -o /ratelimitd ./cmd/ratelimitd

# Only the binary, and the certificate authorities for TLS to Cassandra.
FROM scratch
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="ratelimitd" \
      org.opencontainers.image.description="Rate limits as a service, with counts in Apache Cassandra" \
      org.opencontainers.image.source="https://github.com/ratelimitd/ratelimitd" \
      org.opencontainers.image.documentation="https://github.com/ratelimitd/ratelimitd/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /ratelimitd /ratelimitd
USER 65532:65532
# Other machines may reach this address, so serve needs --auth-file, --tls-client-ca-file or --insecure-no-auth.
ENV RATELIMITD_LISTEN=0.0.0.0:8080
EXPOSE 8080
# Reports liveness whatever the state of the store, because a restart does not help that. It calls RATELIMITD_SERVER, by default port 8080.
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s CMD ["/ratelimitd", "health"]
ENTRYPOINT ["/ratelimitd"]
CMD ["serve"]
