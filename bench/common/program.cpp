#include "common/program.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>

namespace bench {
namespace {

constexpr const char* footer =
    "\nThe servers are those of scripts/with-servers --peers; see there for their variables.\n";

std::string variable(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
}

/// How the variables of a server begin.
constexpr const char* postgresql = "ROWLOCK_TEST_POSTGRESQL_";

std::string mariadb() {
    const bool mysql = variable("ROWLOCK_TEST_SERVER") == "mysql";
    return mysql ? "ROWLOCK_TEST_MYSQL_" : "ROWLOCK_TEST_MARIADB_";
}

std::string url_of(const std::string& server) {
    const auto socket = variable(server + "SOCKET_URL");
    return socket.empty() ? variable(server + "URL") : socket;
}

}  // namespace

int run_program(int argc, char** argv, const std::string& description,
                const std::function<void(const program_options&, findings&)>& body,
                const std::function<void(CLI::App&)>& more) {
    CLI::App app{description};
    program_options options;
    app.add_flag("--quick", options.quick, "Shorter, for a quick check");
    app.add_option("--json", options.json, "Also write the results to FILE")->type_name("FILE");
    if (more) more(app);
    app.footer(footer);
    CLI11_PARSE(app, argc, argv);
    findings found;
    try {
        body(options, found);
        found.write(options.json);
        return 0;
    } catch (const std::exception& failure) {
        fmt::print(stderr, "{}: {}\n", std::filesystem::path{argv[0]}.filename().string(),
                   failure.what());
    }
    try {
        found.write(options.json);  // the results before the failure
    } catch (const std::exception& failure) {
        fmt::print(stderr, "{}\n", failure.what());
    }
    return 1;
}

std::string postgresql_url() {
    return url_of(postgresql);
}

std::string mariadb_url() {
    return url_of(mariadb());
}

std::string network_url(const std::string& database) {
    return need(variable((database == "postgresql" ? std::string{postgresql} : mariadb()) + "URL"),
                database + " over TCP");
}

std::string redis_socket() {
    return variable("ROWLOCK_BENCH_REDIS_SOCKET");
}

std::string redis_always_socket() {
    return variable("ROWLOCK_BENCH_REDIS_ALWAYS_SOCKET");
}

std::string zookeeper_host() {
    return variable("ROWLOCK_BENCH_ZOOKEEPER");
}

std::string need(std::string url, const std::string& server) {
    if (url.empty()) throw std::runtime_error{"there is no " + server + "; see --help"};
    return url;
}

temporary_folder::temporary_folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "rowlock-bench.XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
        throw std::runtime_error{"cannot make a folder in the temporary folder"};
    }
    path_ = pattern;
}

temporary_folder::~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace bench
