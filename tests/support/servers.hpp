#pragma once

#include <optional>
#include <string>
#include <string_view>

/// The database servers that a run of the tests may use. scripts/with-servers starts them.
namespace support {

/// The test servers. Their URLs have a password and the right to make databases and users.
enum class server : unsigned char { postgresql, mariadb };

/// Whether this run is for MySQL alone (ROWLOCK_TEST_SERVER=mysql): it takes MariaDB's place, and
/// neither PostgreSQL nor SQLite is tested again.
[[nodiscard]] bool mysql_alone();

/// Which drivers this run is for (ROWLOCK_TEST_DRIVER): "" by default, "soci" for SOCI's back ends
/// alone, "every" for each native driver, or MySQL's, also where one stands for all.
[[nodiscard]] std::string_view wanted_driver();

/// The URL of `which` over TCP, or nullopt if there is none: the running test case then counts as
/// skipped, with a message. If a run must not skip (environment variable CI or
/// ROWLOCK_REQUIRE_SERVERS), a missing server fails the test case instead. Call it in a test case:
///
///     const auto url = support::url_of(support::server::postgresql);
///     if (!url) return;
[[nodiscard]] std::optional<std::string> url_of(server which);

/// The variable from which url_of() takes it.
[[nodiscard]] const char* url_variable(server which);

/// The same for the server's unix socket.
[[nodiscard]] std::optional<std::string> socket_url_of(server which);

/// Reports likewise that a program which a test needs is not installed: by a visible skip, or a
/// failure where nothing may be skipped.
void miss_program(const std::string& name, const std::string& debian_package);

/// Whether url_of() was called for a missing server: the program's exit status is then 77, a skip,
/// unless a test failed.
[[nodiscard]] bool missed_a_server() noexcept;

}  // namespace support
