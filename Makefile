# build and demo need Go, git, curl and bubblewrap; test needs gcc as well (-race),
# and git-lfs and two Python libraries as clients of the push gateway.
# .ci/deps installs what is missing on Debian, or says what to install.
GO ?= go
LINT = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 30s
POSTERN_RACE ?= 30s

.PHONY: all build demo test attacks namework clients lint fuzz bench soak clean

all: build

build: ## bin/caddy is the appliance, bin/postern the launcher
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/caddy ./caddy-modules/caddy
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/postern ./launcher

demo: ## one sandboxed run: allowed, denied, pushed, refused
	@.ci/deps git curl bubblewrap
	@$(MAKE) --no-print-directory build
	@$(GO) run ./integration/demo

test: ## everything, under the race detector
	@.ci/deps git curl bubblewrap gcc git-lfs python3-dulwich python3-pygit2
	$(GO) vet ./...
	$(GO) test -race -timeout 20m ./...
	$(GO) test -run Memory ./gitgw ./caddy-modules/policy # which the race detector would multiply

attacks: ## every attack on the names of a run, races for $(POSTERN_RACE) each
	@.ci/deps bubblewrap gcc git
	POSTERN_RACE=$(POSTERN_RACE) $(GO) test -v -count=1 -timeout 2h ./integration/nameattacks

namework: ## real work of the larger sizes in runs whose names are guarded, and outside
	@.ci/deps bubblewrap gcc git make npm rsync vim /usr/bin/cargo
	POSTERN_NAMEWORK=all $(GO) test -v -count=1 -timeout 2h ./integration/namework

clients: ## every client in a real run, after installing those that are missing
	@integration/clients/install
	POSTERN_CLIENTS=all $(GO) test -v -count=1 ./integration/clients
	POSTERN_CLIENTS=all $(GO) test -v -count=1 -run LearnNPM ./integration

lint:
	$(LINT) run ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./launcher/... ./caddy-modules/session/lease/...
	GOOS=darwin GOARCH=amd64 $(GO) vet ./launcher/... ./caddy-modules/session/lease/...

fuzz: ## every fuzz target for $(FUZZTIME) each
	@.ci/fuzz $(FUZZTIME)

bench: ## timings beside a floor measured in the same run
	$(GO) test -run '^$$' -bench . -benchmem ./caddy-modules/... ./gitgw/... ./dnsguard/... ./launcher/...
	$(GO) test -run '^$$' -bench . -benchtime 5x -timeout 1h ./integration/namework

soak: ## 50 pushes of 20 MB and 5 of 200 MB at a time, beside a reverse proxy in the same rounds; then 20 min of 500 sessions with 5,000 tunnels (POSTERN_SOAK_TIME, _SESSIONS, _TUNNELS)
	POSTERN_SOAK=1 $(GO) test -run Soak -v -count=1 -timeout 0 ./gitgw
	POSTERN_SOAK=1 $(GO) test -run 'TestSoak$$|SixtyReloads' -v -count=1 -timeout 0 ./integration

clean:
	rm -rf bin
