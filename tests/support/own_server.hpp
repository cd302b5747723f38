#pragma once

#include "support/mariadb_home.hpp"
#include "support/server_process.hpp"
#include "support/servers.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// The settings of an own_server.
struct own_server_settings {
    std::vector<std::string> arguments = {};  ///< further arguments of the server
    std::vector<std::string> before = {};     ///< a command before it, such as env and a variable
};

/// A test's own PostgreSQL or MariaDB (MySQL in a run for that), which it may stop, kill and start
/// again on the same port. Takes seconds to start.
class own_server {
public:
    /// Null if the server's programs are missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<own_server> start(server which,
                                                           own_server_settings how = {});

    /// The URL of a database, with a user with all rights.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

    /// Shuts the server down, which ends all connections, and waits for it.
    void stop();
    /// Ends the server as a crash does: unflushed changes are lost.
    void crash();
    /// Kills its first process by SIGKILL. PostgreSQL's others detect that and end, too.
    void kill();
    /// Starts the server after stop(), crash() or kill(), and waits until it has recovered and
    /// answers.
    void start_again();

    /// Keeps a copy of its data, in place of an earlier one. PostgreSQL, while it is stopped.
    void back_up();
    /// Puts the copy back. PostgreSQL, while it is stopped: it starts on a timeline of its own, as
    /// after a restore from a backup.
    void restore();

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
    bool restored_ = false;
    std::string password_;
    std::uint16_t port_ = 0;
    std::string url_;
    std::unique_ptr<server_process> process_;
};

}  // namespace support
