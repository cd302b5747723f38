#include "support/standby.hpp"

#include "support/lock_database.hpp"
#include "support/server_address.hpp"
#include "support/servers.hpp"
#include <rowlock/driver/postgresql.hpp>

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>
#include <stdexcept>

namespace support {
namespace {

/// The primary's socket, the only way for a standby to connect without a password.
struct socket_address {
    std::string folder;
    std::string port;
};

socket_address socket_address_in(const std::string& url) {
    const std::regex form{R"(.*[?&]host=([^&]*)&port=(\d+).*)"};
    std::smatch found;
    if (!std::regex_match(url, found, form)) {
        throw std::runtime_error{"the socket's URL has another form than scripts/with-servers'"};
    }
    return {std::regex_replace(found[1].str(), std::regex{"%2F"}, "/"), found[2]};
}

}  // namespace

std::string programs_of(rowlock::sql::connection& server) {
    if (const char* folder = std::getenv("ROWLOCK_POSTGRESQL_BIN")) return folder;
    const auto version =
        server.query("select current_setting('server_version_num')::int / 10000", soon());
    return "/usr/lib/postgresql/" + std::string{version.text(0, 0)} + "/bin";
}

std::unique_ptr<standby> standby::start() {
    const auto socket_url = socket_url_of(server::postgresql);
    const auto url = url_of(server::postgresql);
    if (!socket_url || !url) return nullptr;
    const auto primary = rowlock::postgresql::open(*url).connect(soon());
    const std::string bin = programs_of(*primary);
    if (access((bin + "/pg_basebackup").c_str(), X_OK) != 0) {
        miss_program("pg_basebackup", "postgresql-15");
        return nullptr;
    }
    const std::string most{
        primary->query("select current_setting('max_connections')", soon()).text(0, 0)};
    const auto from = socket_address_in(*socket_url);
    auto where = contract::address_of(server::postgresql);
    std::unique_ptr<standby> made{new standby};
    const std::string& home = made->folder_.path();
    if (run_as_server(
            {bin + "/pg_basebackup", "-h", from.folder, "-p", from.port, "-U", "postgres", "-D",
             home + "/data", "-X", "stream", "-R", "--checkpoint=fast", "--no-sync"},
            made->folder_, "basebackup.log") != 0) {
        throw std::runtime_error{"pg_basebackup failed: " + made->folder_.read("basebackup.log")};
    }
    for (int attempt = 0; attempt < 5; ++attempt) {
        where.port = free_port();
        where.host = "127.0.0.1";
        made->process_ = std::make_unique<server_process>(
            std::vector<std::string>{bin + "/postgres", "-D", home + "/data", "-p",
                                     std::to_string(where.port), "-c", "listen_addresses=127.0.0.1",
                                     "-c", "unix_socket_directories=" + home, "-c",
                                     "max_connections=" + most, "-c", "hot_standby=on", "-c",
                                     "shared_buffers=16MB", "-c", "fsync=off"},
            made->folder_, "standby.log", SIGINT);
        made->url_ = where.url() + "?target_session_attrs=any";
        if (comes_up(*made->process_, made->url_, {.query = "select pg_is_in_recovery()::int"},
                     std::chrono::seconds{60})) {
            return made;
        }
    }
    throw std::runtime_error{"the standby did not start: " + made->folder_.read("standby.log")};
}

void standby::promote() {
    rowlock::postgresql::open(url_).connect(soon())->query("select pg_promote(true, 50)", soon());
}

}  // namespace support
