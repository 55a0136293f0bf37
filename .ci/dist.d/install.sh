#!/bin/sh
# Installs the command anamnesis for one user: sh install.sh [--to FOLDER]
#
# It downloads the archive for this machine and SHA256SUMS, compares the digest, and puts one file, `anamnesis`, into FOLDER
# (~/.local/bin). It needs no root, changes no other file, and on any failure leaves what was there.
#
# ANAMNESIS_BASE_URL: the folder of the release, for a mirror.
set -eu

version='@VERSION@'
base=${ANAMNESIS_BASE_URL:-'@REPOSITORY@/releases/download/v@VERSION@'}

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# prints the machine's name in the names of archives
machine() {
  case "$(uname -s) $(uname -m)" in
    'Linux x86_64' | 'Linux amd64') echo x86_64-linux ;;
    'Linux aarch64' | 'Linux arm64') echo aarch64-linux ;;
    *) return 1 ;;
  esac
}

# download URL FILE
download() {
  if command -v curl >/dev/null 2>&1; then
    case $1 in
      # a redirect to a plain connection is refused
      https:*) curl --proto '=https' --fail --silent --show-error --location --output "$2" "$1" ;;
      *) curl --fail --silent --show-error --location --output "$2" "$1" ;;
    esac
  elif command -v wget >/dev/null 2>&1; then
    wget -q -O "$2" "$1"
  else
    fail 'neither curl nor wget is installed'
  fi
}

# prints the digest of FILE
digest() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum <"$1"
  elif command -v shasum >/dev/null 2>&1; then
    shasum -a 256 <"$1"
  elif command -v openssl >/dev/null 2>&1; then
    openssl dgst -sha256 -r <"$1"
  else
    fail 'sha256sum, shasum and openssl are missing; the download cannot be verified'
  fi | cut -d ' ' -f 1
}

install() {
  to=$HOME/.local/bin
  while [ $# -gt 0 ]; do
    case $1 in
      --to)
        [ -n "${2:-}" ] || fail '--to needs a folder'
        to=$2
        shift 2
        ;;
      --help | -h)
        echo 'usage: sh install.sh [--to FOLDER]    (FOLDER is ~/.local/bin unless given)'
        exit 0
        ;;
      *) fail "there is no argument $1; usage: sh install.sh [--to FOLDER]" ;;
    esac
  done
  case $to in
    /*) ;;
    *) to=$PWD/$to ;;
  esac
  built=$(machine) || fail "there is no build for $(uname -s) $(uname -m); with Rust: cargo install anamnesis-tensors-cli"
  archive=anamnesis-$version-$built.tar.xz

  mkdir -p "$to" || fail "$to cannot be created; choose another folder with --to"
  [ ! -d "$to/anamnesis" ] || fail "$to/anamnesis is a folder; choose another place with --to"
  # in the same folder, so that the last step is a rename: the program is the old one or the new one, whole
  work=$to/.anamnesis-install.$$
  (umask 077 && mkdir "$work") || fail "$to cannot be written; choose another folder with --to"
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP

  echo "downloading $base/$archive"
  download "$base/SHA256SUMS" "$work/SHA256SUMS" || fail "$base/SHA256SUMS cannot be downloaded; nothing was installed"
  download "$base/$archive" "$work/$archive" || fail "$base/$archive cannot be downloaded; nothing was installed"
  expected=$(awk -v name="$archive" '$2 == name { print $1 }' "$work/SHA256SUMS")
  [ -n "$expected" ] || fail "SHA256SUMS does not name $archive; nothing was installed"
  found=$(digest "$work/$archive")
  [ "$found" = "$expected" ] || fail "$archive has the SHA-256 $found, and SHA256SUMS names $expected; nothing was installed"

  tar -xJf "$work/$archive" -C "$work" "anamnesis-$version/anamnesis" ||
    fail "$archive cannot be unpacked (is xz installed, and is there space?); nothing was installed"
  program=$work/anamnesis-$version/anamnesis
  chmod 755 "$program"
  says=$("$program" --version) || fail "the program does not run from $to; choose another folder with --to; nothing was installed"
  mv -f "$program" "$to/anamnesis" || fail "$to/anamnesis cannot be replaced; nothing was installed"
  echo "verified the SHA-256 $found"
  echo "installed $says: $to/anamnesis"
  case :$PATH: in
    *":$to:"*) ;;
    *) echo "$to is not in PATH; add it: export PATH=\"$to:\$PATH\"" ;;
  esac
  echo 'man pages: anamnesis man --out FOLDER; completions: anamnesis completions bash (or zsh, fish)'
}

# the last line, so that a part of this file does nothing
install "$@"
