#pragma once

#include "support/mariadb_home.hpp"
#include "support/server_process.hpp"
#include "support/servers.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// How an own_server is started.
struct own_server_settings {
    std::vector<std::string> arguments = {};  ///< the server's own, behind ours
    std::vector<std::string> before = {};     ///< such as env and a variable
};

/// A PostgreSQL or MariaDB (MySQL in a run for that) of a test's own, which it may stop, kill and
/// start again; the port stays the same. Takes seconds to make.
class own_server {
public:
    /// Null if the server's programs are missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<own_server> start(server which,
                                                           own_server_settings how = {});

    /// A user with all rights, and a database.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

    /// The orderly way, which ends all connections, and waits until it is down.
    void stop();
    /// As if it had crashed: what was not flushed is lost.
    void crash();
    /// SIGKILL of its first process; PostgreSQL's others see it and end, too.
    void kill();
    /// After stop(), crash() or kill(), until it answers; recovery included.
    void start_again();

private:
    own_server() = default;

    [[nodiscard]] bool prepare_postgresql();
    [[nodiscard]] bool prepare_mariadb();
    [[nodiscard]] std::vector<std::string> command() const;
    [[nodiscard]] const server_folder& folder() const;
    [[nodiscard]] bool run();
    void end(int signal);

    own_server_settings how_;
    std::unique_ptr<mariadb_home> mariadb_;
    server_folder folder_;
    std::string postgresql_;  ///< the folder of its programs
    std::string password_;
    std::uint16_t port_ = 0;
    std::string url_;
    std::unique_ptr<server_process> process_;
};

}  // namespace support
