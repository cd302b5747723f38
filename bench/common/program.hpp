#pragma once

#include "common/findings.hpp"

#include <filesystem>
#include <functional>
#include <string>

namespace CLI {
class App;
}

/// The common parts of the programs: options, URLs, temporary files, main().
namespace bench {

struct program_options {
    bool quick = false;
    std::string json{};
};

/// Parses the command line, runs `body`, writes its results. Returns main()'s exit status.
/// @param more adds the program's own options
int run_program(int argc, char** argv, const std::string& description,
                const std::function<void(const program_options&, findings&)>& body,
                const std::function<void(CLI::App&)>& more = {});

/// The URL of a Unix socket if there is one: ROWLOCK_TEST_POSTGRESQL_SOCKET_URL and so on, which
/// scripts/with-servers sets. Empty if the server is missing.
[[nodiscard]] std::string postgresql_url();
/// With ROWLOCK_TEST_SERVER=mysql that of MySQL, in the place of MariaDB's.
[[nodiscard]] std::string mariadb_url();
/// The same over TCP, of "postgresql" or "mariadb".
/// @throws std::runtime_error if there is none
[[nodiscard]] std::string network_url(const std::string& database);
/// The Redis of `--peers`. Empty if there is none.
[[nodiscard]] std::string redis_socket();
[[nodiscard]] std::string redis_always_socket();
[[nodiscard]] std::string zookeeper_host();

/// @throws std::runtime_error that names the server, if `url` is empty
std::string need(std::string url, const std::string& server);

class temporary_folder {
public:
    temporary_folder();
    ~temporary_folder();
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

}  // namespace bench
