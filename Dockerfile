FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /ratelimitd ./cmd/ratelimitd

# Nothing but the binary, and the authorities that a TLS connection to Cassandra may need.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /ratelimitd /ratelimitd
USER 65532:65532
# Other machines may reach that: serve refuses it without --auth-file, --tls-client-ca-file or --insecure-no-auth.
ENV RATELIMITD_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["/ratelimitd"]
CMD ["serve"]
