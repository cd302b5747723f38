#include "support/pgbouncer.hpp"

#include "support/server_address.hpp"
#include "support/servers.hpp"

#include <signal.h>
#include <unistd.h>

#include <stdexcept>

namespace support {
namespace {

std::string program() {
    for (const char* each :
         {"/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"}) {
        if (access(each, X_OK) == 0) return each;
    }
    return {};
}

/// Every client connects as the test user: the tests are not about the clients' passwords.
std::string configuration(const contract::server_address& server, std::uint16_t port,
                          pgbouncer::pool_mode mode, const std::string& settings) {
    const bool transaction = mode == pgbouncer::pool_mode::transaction;
    return "[databases]\n" + server.database + " = host=" + server.host +
           " port=" + std::to_string(server.port) + " user=" + server.user +
           " password=" + server.password +
           "\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = " + std::to_string(port) +
           "\nunix_socket_dir =\nauth_type = any\npool_mode = " +
           (transaction ? "transaction" : "session") +
           "\nmax_client_conn = 100\ndefault_pool_size = 20\n"
           "ignore_startup_parameters = extra_float_digits\n" +
           settings + "\n";
}

}  // namespace

std::unique_ptr<pgbouncer> pgbouncer::start(pool_mode mode, const std::string& settings) {
    if (!url_of(server::postgresql)) return nullptr;
    const std::string path = program();
    if (path.empty()) {
        miss_program("PgBouncer", "pgbouncer");
        return nullptr;
    }
    const auto server = contract::address_of(server::postgresql);
    std::unique_ptr<pgbouncer> made{new pgbouncer};
    for (int attempt = 0; attempt < 5; ++attempt) {
        const auto port = free_port();
        made->folder_.write("pgbouncer.ini", configuration(server, port, mode, settings));
        made->process_ = std::make_unique<server_process>(
            std::vector<std::string>{path, made->folder_.path() + "/pgbouncer.ini"}, made->folder_,
            "pgbouncer.log", SIGTERM);
        made->url_ = "postgresql://" + server.user + "@127.0.0.1:" + std::to_string(port) + "/" +
                     server.database;
        if (comes_up(*made->process_, made->url_)) return made;
    }
    throw std::runtime_error{"PgBouncer did not start: " + made->folder_.read("pgbouncer.log")};
}

}  // namespace support
