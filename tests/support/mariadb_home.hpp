#pragma once

#include "support/server_process.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// The data folder of a MariaDB, or of a MySQL in a run for that, and how to start the server on
/// it.
class mariadb_home {
public:
    /// Null if mariadbd is missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<mariadb_home> install();

    /// The command line of the server, which answers on 127.0.0.1.
    [[nodiscard]] std::vector<std::string> command(std::uint16_t port) const;
    /// mysql://… with a user with all rights, and a database.
    [[nodiscard]] std::string url(std::uint16_t port) const;
    [[nodiscard]] const server_folder& folder() const noexcept { return folder_; }

private:
    mariadb_home() = default;
    [[nodiscard]] static std::unique_ptr<mariadb_home> install_mysql();

    // On disk: MariaDB flushes nothing of a log in memory (it takes it for persistent), and tests
    // hold the flushes back.
    server_folder folder_{server_folder::place::disk};
    std::vector<std::string> program_;  ///< with the options that say where its own files are
    std::string password_ = random_password();
};

}  // namespace support
