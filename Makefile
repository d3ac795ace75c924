# All targets run on a fresh machine with Go, and Docker or else Java 17 and Maven, unless their help says otherwise.

GOLANGCI_VERSION := 2.15.0
GOVULNCHECK_VERSION := 1.8.0
NFPM_VERSION := 2.45.0
CYCLONEDX_VERSION := 1.10.0
GOTESTSUM_VERSION := 1.13.0
# Packages of the Go client's module: this module requires it; its sources are in client/.
GOCLIENT  := github.com/ratelimitd/ratelimitd/client/...
PACKAGES  ?= ./... $(GOCLIENT)
# Modules that check this module's promises from outside.
CHECKS    := internal/faults internal/broken
NODES     ?= 1
TESTFLAGS ?=
FUZZTIME  ?= 10s
FUZZ      ?= ^Fuzz
FUZZBUILD ?= -fuzz=.
FUZZWORKERS ?= 2
BROKENFLAGS ?=

# The linter on the PATH if it has this version; otherwise it is built once, into the user's cache.
TOOLS    := $(abspath $(shell go env GOCACHE)/../ratelimitd/tools)
GOLANGCI := $(or $(shell golangci-lint version 2>/dev/null | grep -qF ' $(GOLANGCI_VERSION) ' && command -v golangci-lint), \
              $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint)

# `make test` uses it to run go test: at the end it repeats failures and names skipped tests.
GOTESTSUM := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)/gotestsum
gotestsum := $(GOTESTSUM) --format pkgname-and-test-fails --

# The tools that build and describe packages are built in the same way.
NFPM       := $(TOOLS)/nfpm-$(NFPM_VERSION)/nfpm
CYCLONEDX  := $(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION)/cyclonedx-gomod

# Under the race detector a program waits for a second before it ends, for races of remaining goroutines. A tenth of
# that is enough.
export GORACE ?= atexit_sleep_ms=100

MVN := MAVEN_OPTS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' mvn -q -B -DadditionalJOption=-J-XX:TieredStopAtLevel=1

localcassandra := go run ./internal/cassandra/cassandratest/cmd/localcassandra

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: ## serve on 127.0.0.1:8080, counts in memory, example policies
	go run ./cmd/ratelimitd serve

.PHONY: test
test: $(GOTESTSUM) ## all tests, on a real Cassandra in Docker or else in Java
	$(localcassandra) -- env CGO_ENABLED=1 $(gotestsum) -race -shuffle=on -timeout 20m $(TESTFLAGS) $(PACKAGES)
	$(if $(findstring ./...,$(PACKAGES)),$(MAKE) test-without-race test-checks)

# Tests that do less under the race detector (race.Enabled), because it is ten times slower, are also run without it.
.PHONY: test-without-race
test-without-race: $(GOTESTSUM)
	tests=$$(git grep -hp 'race\.Enabled' -- '*_test.go' | sed -n 's/^func \(Test[A-Za-z0-9]*\)(.*/\1/p' | sort -u | paste -sd '|' -); \
	$(gotestsum) $(TESTFLAGS) -run "^($$tests)\$$" $$(git grep -l 'race\.Enabled' -- '*_test.go' | sed 's,^,./,; s,/[^/]*$$,,' | sort -u)

# The tests of the modules CHECKS.
.PHONY: test-checks
test-checks:
	@set -ex; for module in $(CHECKS); do CGO_ENABLED=1 go test -C $$module -race -shuffle=on $(TESTFLAGS) ./...; done

.PHONY: test-short
test-short: ## the tests that need no Cassandra
	CGO_ENABLED=1 go test -race -shuffle=on -short $(TESTFLAGS) $(PACKAGES)
	$(if $(findstring ./...,$(PACKAGES)),$(MAKE) test-checks)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s), one after the other; FUZZ=^FuzzCell$$ selects some
	@set -e; bin=$$(mktemp -d); trap 'rm -rf "$$bin"' EXIT; trap 'exit 130' INT TERM; \
	cache=$$(go env GOCACHE)/fuzz; packages=$$(go list -f '{{.ImportPath}}={{.Dir}}' $(PACKAGES)); \
	for package in $$packages; do \
	  cd "$${package#*=}"; package=$${package%%=*}; \
	  grep -hos '^func Fuzz[^(]*' ./*_test.go | cut -c6- | grep -qE '$(FUZZ)' || continue; \
	  go test -c $(FUZZBUILD) -o "$$bin/fuzz" .; \
	  for target in $$("$$bin/fuzz" -test.list '$(FUZZ)' | grep '^Fuzz' || true); do \
	    echo "== $$target of $$package"; \
	    "$$bin/fuzz" -test.run '^$$' -test.fuzz "^$$target$$" -test.fuzztime $(FUZZTIME) \
	      -test.fuzzminimizetime 10x -test.parallel $(FUZZWORKERS) -test.fuzzcachedir "$$cache/$$package"; \
	  done; \
	done

.PHONY: fuzz-long
fuzz-long: FUZZTIME = 1h
fuzz-long: fuzz ## the same for an hour each, two days in all; FUZZ='^Fuzz(Connection|JSON)$$' selects those that compare with Go's own code

.PHONY: abuse
abuse: ## a server under 10,000 slow, idle and hostile clients, for eleven minutes; prints a table
	go test ./internal/cli/serve -run '^TestAbuse$$' -v -count=1 -timeout 30m -abuse $(TESTFLAGS)

.PHONY: vuln
vuln: ## known vulnerabilities in functions that the program calls; needs vuln.go.dev, or a copy of it in GOVULNDB
	go run golang.org/x/vuln/cmd/govulncheck@v$(GOVULNCHECK_VERSION) ./... $(GOCLIENT)

.PHONY: broken
broken: ## builds broken on purpose, and the tests that catch each: a table (BROKENFLAGS=-vital: the few of CI)
	go build -C internal/broken -o ../../bin/broken ./cmd/broken
	bin/broken $(BROKENFLAGS)

# All modules are linted at once, in a workspace, because each one alone would analyse all its imports again. Garbage collection would
# take a third of the time by default.
MODULES := . client bench examples/middleware deploy/monitoring/dashboard deploy/check $(CHECKS)

.PHONY: lint
lint: $(GOLANGCI) ## format, vet, linters, the import rules, a tidy go.mod
	@unformatted=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l); [ -z "$$unformatted" ] || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	@work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; export GOWORK="$$work/go.work"; \
	  go work init $(MODULES) && GOGC=400 GOMEMLIMIT=3GiB $(GOLANGCI) run $(MODULES:%=./%/...)
	@set -e; for module in $(MODULES); do (cd "$$module" && go mod tidy -diff); done

.PHONY: examples
examples: ## tests of the examples that have a go.mod of their own; make test runs the others
	cd examples/middleware && go test ./...

.PHONY: monitoring
monitoring: ## tests of alerts and dashboard; needs promtool, from Debian's prometheus
	cd deploy/monitoring/dashboard && go test ./...
	go test ./deploy/monitoring

# These also check snippets of pages.
.PHONY: client-tools
client-tools:
	cd clients/typescript && npm ci --silent --no-audit --no-fund
	clients/python/check --install
	cd clients && $(MVN) -pl java compile

.PHONY: clients
clients: client-tools clients-typescript clients-python clients-java clients-generated ## the clients of other languages: lint, types, their packages against a real server, and clients generated from openapi.yaml; make test runs Go's

.PHONY: clients-server
clients-server:
	CGO_ENABLED=0 go build -trimpath -o bin/ratelimitd ./cmd/ratelimitd

.PHONY: clients-typescript
clients-typescript: clients-server
	cd clients/typescript && npm run --silent lint && npm test --silent

.PHONY: clients-python
clients-python: clients-server
	clients/python/check

.PHONY: clients-java
clients-java: clients-server
	cd clients && RATELIMITD_BIN=$(CURDIR)/bin/ratelimitd $(MVN) verify

.PHONY: clients-generated
clients-generated:
	clients/generated/check

.PHONY: hosts
hosts: ## the same on more hosts: every installed Python, the newest Java, Next 14 to 16, and clients generated for Ruby, PHP and Kotlin
	PYTHONS=all $(MAKE) clients
	cd clients/typescript && node hosts/next.mjs
	clients/generated/others/check
	RATELIMITD_BIN=$(CURDIR)/bin/ratelimitd clients/java/newest

.PHONY: tools
tools: $(GOTESTSUM) $(NFPM) $(CYCLONEDX) ## build the tools that run tests, and that build and describe packages

.PHONY: packages
packages: $(NFPM) $(CYCLONEDX) ## tests of packages, chart, image and compose file with real tools: needs Docker, nginx, promtool and rpm
	PATH=$(dir $(NFPM)):$(dir $(CYCLONEDX)):$$PATH \
	  $(localcassandra) -- go test -C deploy/check -count=1 $(TESTFLAGS) ./...

.PHONY: release
release: $(NFPM) $(CYCLONEDX) ## all files of a release of this commit, into dist; publishes nothing
	rm -rf dist
	PATH=$(dir $(NFPM)):$(dir $(CYCLONEDX)):$$PATH deploy/package/release dist linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

$(GOLANGCI):
	GOBIN=$(@D) go install $(QUICKLY) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_VERSION)

# Tools are compiled without optimization, which takes two thirds of the time. Packages that the program needs are compiled
# already, and those in which the linter spends most of its time are optimized.
QUICKLY := $(filter -gcflags=%,$(GOFLAGS)) -gcflags='github.com/...=-N -l -dwarf=false'

$(GOTESTSUM):
	GOBIN=$(@D) CGO_ENABLED=0 go install $(QUICKLY) gotest.tools/gotestsum@v$(GOTESTSUM_VERSION)

$(NFPM):
	GOBIN=$(@D) CGO_ENABLED=0 go install $(QUICKLY) github.com/goreleaser/nfpm/v2/cmd/nfpm@v$(NFPM_VERSION)

$(CYCLONEDX):
	GOBIN=$(@D) CGO_ENABLED=0 go install $(QUICKLY) github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v$(CYCLONEDX_VERSION)

.PHONY: docs
docs: ## update the pages made from the code: docs/api.md, docs/reference/flags.md, metrics.md, docs/contributing/packages.md, and the outputs that pages show
	go test ./internal/api/apidoc -update
	$(localcassandra) -- go test ./docs -count=1 -update

.PHONY: docs-check
docs-check: ## checks of the pages' links, words, facts and commands, on a real Cassandra in Docker or else in Java
	$(localcassandra) -- go test ./docs -count=1

VENV := $(TOOLS)/site
.PHONY: site
site: ## the pages as a web site, into bin/site/site; a broken link fails. Needs Python 3.10 with venv
	test -x $(VENV)/bin/python || python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --requirement docs/site/requirements.txt
	go run ./docs/site bin/site
	$(VENV)/bin/zensical build --strict --clean --config-file bin/site/mkdocs.yml

BENCH ?=

.PHONY: bench
bench: ## ratelimitd and its competitors under the same load, into bin/bench, in 90 minutes; BENCH='-peers embedded,redis_rate', NODES=3
	go build -C bench -o ../bin/ratelimitd-bench ./cmd/bench
	$(localcassandra) -tuned -nodes $(NODES) -- bin/ratelimitd-bench -dir bench -out bin/bench $(BENCH)

.PHONY: bench-smoke
bench-smoke: ## the same for fractions of a second, with its tests; all must decide correctly
	cd bench && go test ./... && go run ./cmd/bench -smoke -out ../bin/bench-smoke

.PHONY: gobench
gobench: ## all Go benchmarks, including those on a real Cassandra
	$(localcassandra) -tuned -- go test -run '^$$' -bench . -benchmem $(TESTFLAGS) $(PACKAGES)

FAULTS ?= -duration 5m

.PHONY: faults
faults: ## tests of the promises while real nodes and processes die; FAULTS='-seed 7 -duration 30m'
	go build -C internal/faults -o ../../bin/faults ./cmd/faults
	bin/faults $(FAULTS)

.PHONY: cassandra
cassandra: ## a local Cassandra until Ctrl-C; NODES=3 for three nodes
	$(localcassandra) -nodes $(NODES)

# The version of all builds of this tree, from CHANGELOG.md.
VERSION = $(shell deploy/package/version)
RELEASE = $(shell deploy/package/version --release)
GOBUILD = CGO_ENABLED=0 go build -trimpath -ldflags="-s -X main.released=v$(VERSION)"

.PHONY: build
build: ## the binary, as bin/ratelimitd
	$(GOBUILD) -o bin/ratelimitd ./cmd/ratelimitd

DIST ?= dist

.PHONY: deb rpm
deb rpm: $(NFPM) ## one package for machines like this one, into dist
	mkdir -p $(DIST)
	GOOS=linux $(GOBUILD) -o bin/package/ratelimitd ./cmd/ratelimitd
	VERSION=$(VERSION) ARCH=$$(go env GOARCH) BINARY=bin/package/ratelimitd \
	  $(NFPM) package --config deploy/package/nfpm.yaml --packager $@ --target $(DIST)

IMAGE ?= ratelimitd

.PHONY: image
image: ## the Docker image ratelimitd, as :local and with the tag that the chart pulls; IMAGE=REGISTRY/ratelimitd
	docker build -t $(IMAGE):v$(RELEASE) -t $(IMAGE):local --build-arg VERSION=v$(VERSION) \
	  --build-arg REVISION=$(shell git rev-parse HEAD) .

.PHONY: version
version: ## write the newest release of CHANGELOG.md into the chart and the clients
	deploy/package/version --write
