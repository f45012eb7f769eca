#!/usr/bin/env bash
# Builds the image of this working tree and pushes it. Again: sends what changed.
. "$(dirname "$0")/common.sh"
need IMAGE
# BuildKit reads Dockerfile.dockerignore, which stands beside the Dockerfile.
export DOCKER_BUILDKIT=1
run docker build --platform=linux/amd64 --build-arg="CODE_VERSION=$(code_version)" \
  --file="$HERE/Dockerfile" --tag="$IMAGE" "$ROOT"
run docker push "$IMAGE"
