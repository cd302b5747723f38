# Sourced by scripts/quickstart and scripts/test: packages, presets, messages.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

say() { printf '\n== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# --- packages -----------------------------------------------------------------------------------

missing_packages=()

# need_package PACKAGE…: must be installed (on Debian; elsewhere CMake names missing packages).
need_package() {
    command -v dpkg-query >/dev/null || return 0
    local package
    for package in "$@"; do
        if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
            missing_packages+=("$package")
        fi
    done
}

# need_command COMMAND PACKAGE…: any program of that name suffices, from any source.
need_command() {
    command -v "$1" >/dev/null || need_package "${@:2}"
}

need_build_packages() {
    need_command "${CXX:-c++}" g++
    need_command cmake cmake
    need_command ninja ninja-build
    need_command ccache ccache
    need_package libpq-dev libmysqlcppconn-dev libmariadb-dev libsqlite3-dev libsoci-dev \
        libcli11-dev libfmt-dev nlohmann-json3-dev libcpp-httplib-dev
    need_command pkg-config pkg-config # finds cpp-httplib
}

# The packages of the tests, and of the servers that they start.
need_servers() {
    need_build_packages
    need_package doctest-dev
    need_command tmux tmux # a terminal for the tool
    if [[ -z ${ROWLOCK_TEST_POSTGRESQL_URL:-} ]] &&
        ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
        need_command postgres postgresql-15
    fi
    PATH=$PATH:/usr/sbin need_command pgbouncer pgbouncer
    PATH=$PATH:/usr/sbin need_command haproxy haproxy
    # Checks metrics, alert rules and the dashboard's expressions.
    need_command promtool prometheus
    # A browser, and what drives it, for the page of `rowlock serve`.
    need_command chromium chromium
    need_command chromedriver chromium-driver
    if [[ -z ${ROWLOCK_TEST_MARIADB_URL:-} ]]; then
        need_command mariadb-install-db mariadb-server-core mariadb-client-core
    fi
    # The tests start clusters themselves, and move clocks.
    need_package galera-4 mariadb-server-core libfaketime
}

# Installs missing packages. Without any, neither apt-get nor root is needed.
install_missing_packages() {
    ((${#missing_packages[@]})) || return 0
    say "Installing what is missing: ${missing_packages[*]}"
    local as_root=()
    if [[ $EUID -ne 0 ]]; then
        command -v sudo >/dev/null ||
            die "needs root to install packages; as root, run: apt-get install ${missing_packages[*]}"
        as_root=(sudo)
    fi
    "${as_root[@]}" scripts/install-packages "${missing_packages[@]}" ||
        die "could not install: ${missing_packages[*]}"
    missing_packages=()
    hash -r
}

# --- building -----------------------------------------------------------------------------------

# configure PRESET [CMAKE-ARGUMENT…]
configure() {
    if command -v ccache >/dev/null; then
        export CMAKE_CXX_COMPILER_LAUNCHER=ccache
        export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$root  # builds in different folders share results
    fi
    local output
    output=$(cmake --preset "$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        die "cmake could not configure the build"
    }
}

# build PRESET [TARGET…]
build() {
    local preset=$1
    shift
    cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"}
}
