#include "support/servers.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace support {
namespace {

std::atomic<bool> missed{false};

bool is_set(const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr && *value != '\0';
}

bool nothing_may_be_skipped() {
    return is_set("CI") || is_set("ROWLOCK_REQUIRE_SERVERS");
}

std::optional<std::string> url_in(const char* variable) {
    if (is_set(variable)) return std::getenv(variable);
    if (nothing_may_be_skipped()) {
        FAIL("no server: ", variable, " is not set; run the tests by scripts/test");
    }
    missed = true;
    MESSAGE("skipped: ", std::string{variable}, " is not set; scripts/with-servers starts servers");
    return std::nullopt;
}

}  // namespace

bool mysql_alone() {
    constexpr const char* variable = "ROWLOCK_TEST_SERVER";
    if (!is_set(variable)) return false;
    if (std::string_view{std::getenv(variable)} != "mysql") {
        throw std::runtime_error{std::string{variable} + " is mysql or not set"};
    }
    return true;
}

std::string_view wanted_driver() {
    constexpr const char* variable = "ROWLOCK_TEST_DRIVER";
    if (!is_set(variable)) return "";
    const std::string_view wanted = std::getenv(variable);
    if (wanted != "soci" && wanted != "every") {
        throw std::runtime_error{std::string{variable} + " is soci, every or not set"};
    }
    return wanted;
}

const char* url_variable(server which) {
    if (which == server::postgresql) return "ROWLOCK_TEST_POSTGRESQL_URL";
    return mysql_alone() ? "ROWLOCK_TEST_MYSQL_URL" : "ROWLOCK_TEST_MARIADB_URL";
}

std::optional<std::string> url_of(server which) {
    if (which == server::postgresql && mysql_alone()) return std::nullopt;
    return url_in(url_variable(which));
}

std::optional<std::string> socket_url_of(server which) {
    if (which == server::postgresql) {
        return mysql_alone() ? std::nullopt : url_in("ROWLOCK_TEST_POSTGRESQL_SOCKET_URL");
    }
    return url_in(mysql_alone() ? "ROWLOCK_TEST_MYSQL_SOCKET_URL"
                                : "ROWLOCK_TEST_MARIADB_SOCKET_URL");
}

void miss_program(const std::string& name, const std::string& debian_package) {
    if (nothing_may_be_skipped()) {
        FAIL(name, " is not installed (Debian: ", debian_package, "); scripts/test installs it");
    }
    missed = true;
    MESSAGE("skipped: ", name, " is not installed (Debian: ", debian_package, ")");
}

bool missed_a_server() noexcept {
    return missed;
}

}  // namespace support
