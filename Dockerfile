# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# For those who want one; make images needs no container engine. One file for every image: docker build --build-arg BINARY=calico-node-sync .
# The image holds one static binary and no shell; it runs as 65532 and needs no writable file.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26.8 AS build
ARG BINARY
ARG VERSION=""
ARG COMMIT=""
ARG DATE=""
ARG TARGETOS=linux
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    INFO=github.com/mooring-dev/mooring/internal/platform/buildinfo; \
    test -n "$BINARY" || { echo "build-arg BINARY is missing: name one folder of cmd/" >&2; exit 1; } && \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X $INFO.version=$VERSION -X $INFO.commit=$COMMIT -X $INFO.date=$DATE" -o /out/bin/$BINARY ./cmd/$BINARY && \
    ln -s /bin/$BINARY /out/entrypoint

FROM scratch
ARG BINARY
LABEL org.opencontainers.image.title="$BINARY" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The Mooring Authors"
# /bin/<name> is where manifests of the projects that we succeed start the program: with their command, only the image needs to change.
COPY --from=build /out/ /
USER 65532:65532
ENTRYPOINT ["/entrypoint"]
