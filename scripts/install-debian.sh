#!/bin/sh
# Installs the Debian packages that building and testing sennit needs, and only those that are missing.
# Needs root or sudo, and the network, only when something is missing. Tested on Debian 12.
set -eu

# What each is for: build tools; ONNX's wire format; code generation; GEMM and convolution; ranks; JSON; then tests alone:
# FileCheck (whose package brings python3, which tests/bench uses), ONNX's operator tests, libFuzzer and its runtime, style.
packages="gcc libc6-dev cmake ninja-build pkg-config
protobuf-c-compiler libprotobuf-c-dev
llvm-19-dev zlib1g-dev
libdnnl-dev
openmpi-bin libopenmpi-dev procps
libjansson-dev
libcmocka-dev llvm-19-tools libonnx-testdata clang-19 libclang-rt-19-dev clang-format xz-utils"

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if ! command -v dpkg-query >/dev/null; then
    echo "install-debian: this is no Debian; install the equivalents of:" $packages >&2
    exit 1
fi

missing=""
for package in $packages; do
    installed "$package" || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "install-debian: all packages are present"
    exit 0
fi

echo "install-debian: installing$missing"
as_root=""
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-debian: neither root nor sudo; as root, run: apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    as_root="sudo"
fi

# A fresh machine or image has no package lists, or old ones whose files have left the mirror; both show as a failed install.
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
}
if ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 && install; then
    exit 0
fi
echo "install-debian: fetching package lists"
$as_root apt-get update -q
install
