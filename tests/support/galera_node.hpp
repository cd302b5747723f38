#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace support {

/// A Galera cluster of one node, MariaDB's own provider in it: what a client sees of a cluster, and
/// what one node does by itself. Started by this object in a temporary folder, on free ports of
/// 127.0.0.1, as an unprivileged user if we are root; stopped by its process id, at the latest when
/// this process dies. Takes a few seconds: make one for a whole test program.
class galera_node {
public:
    /// If mariadbd or the provider (Debian: mariadb-server-core, galera-4) is not installed there()
    /// is false, and the running test case counts as skipped, or fails where servers are required,
    /// as with support::url_of. One that is there and does not start throws std::runtime_error.
    galera_node();
    galera_node(const galera_node&) = delete;
    galera_node& operator=(const galera_node&) = delete;
    ~galera_node();

    [[nodiscard]] bool there() const noexcept { return process_ > 0; }
    /// mysql://…, a user with all rights, and a database.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

private:
    bool start(std::uint16_t port);
    [[nodiscard]] bool is_ready();
    void stop_process() noexcept;
    void stop() noexcept;

    std::string folder_;
    std::string url_;
    pid_t process_ = 0;
};

}  // namespace support
